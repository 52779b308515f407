"""The arguments and outputs of a call that a kernel takes, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.spec import Call


class Operands:
    """Tensors of a call that are neighbouring parameters of a kernel's function and have the same names there.

    `dtypes` describe them in the kernel's signature: None for one that the call does not have.
    """

    __slots__ = ("_positions", "dtypes")

    def __init__(self, call: Call, function: Callable[..., None], *names: str) -> None:
        parameters = list(inspect.signature(function).parameters)
        first = parameters.index(names[0]) if names[0] in parameters else 0
        if parameters[first : first + len(names)] != list(names):
            raise TypeError(f"{function.__name__} takes {parameters}, is given {list(names)}")
        contract = list(call.spec.params)
        self.dtypes: tuple[torch.dtype | None, ...] = tuple(
            None if call[name] is None else call[name].dtype for name in names
        )
        self._positions = [contract.index(name) for name in names if call[name] is not None]

    def addresses(self, args: Sequence[Any], outs: Sequence[Any]) -> list[int]:
        """Of those that the call has; arguments and outputs stand in the contract's order."""
        tensors = (*args, *outs)
        return [tensors[position].data_ptr() for position in self._positions]
