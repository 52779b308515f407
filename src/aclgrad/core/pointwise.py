"""The operands of an element-wise launch: which of a call's tensors a formula reads and writes, in its own order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import torch

from .loops import Strides
from .meta import Meta
from .spec import Call

T = TypeVar("T")
Pick: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]


class PointwiseOperands:
    """A formula's inputs, then its outputs, by their names in the contract.

    An argument that is updated in place stands among both. What the call does not have (an input that is not given, an
    output that is not wanted) is absent: it has no strides and no dtype, and `spread` puts None in its place.
    """

    def __init__(self, call: Call, inputs: Sequence[str], outs: Sequence[str]) -> None:
        self._names = (*inputs, *outs)
        self._positions = {name: k for k, name in enumerate(call.spec.params)}
        self._metas: tuple[Meta | None, ...] = tuple(call[name] for name in self._names)
        self._given = [meta for meta in self._metas if meta is not None]

    @property
    def shape(self) -> tuple[int, ...]:
        """The one shape of all operands."""
        return self._given[0].shape

    @property
    def strides(self) -> list[Strides]:
        """The strides of the operands that are there."""
        return [meta.strides for meta in self._given]

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The dtypes of the operands that are there."""
        return [meta.dtype for meta in self._given]

    def spread(self, values: Sequence[T]) -> tuple[T | None, ...]:
        """What belongs to the operands that are there, with None for every absent one."""
        remaining = iter(values)
        return tuple(None if meta is None else next(remaining) for meta in self._metas)

    @property
    def all(self) -> Pick | None:
        """The operands among the tensors `(*args, *outs)` of a launch, None for absent ones; see `_pick`."""
        return self._pick([self._positions[name] for name in self._names])

    @property
    def present(self) -> Pick | None:
        """The same without the absent ones."""
        pairs = zip(self._names, self._metas, strict=True)
        return self._pick([self._positions[name] for name, meta in pairs if meta is not None])

    def _pick(self, positions: Sequence[int]) -> Pick | None:
        """These positions of a sequence as a tuple; None where they are all of it, in order, which saves a call."""
        if list(positions) == list(range(len(self._positions))):
            return None
        return itemgetter(*positions) if len(positions) > 1 else lambda values: (values[positions[0]],)
