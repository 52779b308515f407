"""What an operator should have written: the family's formula in float64, and the naive run in the results' dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ...core.memory import tensors_in
from ...core.meta import Meta
from ...core.plan import Operator
from ...core.spec import OpSpec, Out
from ..cases import suite
from ..precision.statistics import Flat, flat
from ..verdicts import formula, naive_run, precision

LARGE = 1 << 22  # elements from which on an element-wise formula is computed in pieces


def call_dtype(spec: OpSpec, args: Sequence[Any]) -> torch.dtype:
    """The dtype of a call: that of its main argument, or, where this one is left out, of the first with numbers."""
    names = [arg.name for arg in spec.args]
    candidates = tensors_in([args[names.index(suite(spec).main)], *args])
    numbers = (tensor.dtype for tensor in candidates if tensor.is_floating_point())
    return next(numbers, candidates[0].dtype)  # integers are computed as what they are


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values of float64, of any shape, rounded once to the nearest even of a narrower type.

    torch goes by way of float32, which rounds twice: 1 + 2^-11 + 2^-40 is just above the middle between two numbers of
    float16, but in float32 it is the middle.

    >>> rounded(torch.tensor(1 + 2.0**-11 + 2.0**-40, dtype=torch.float64), torch.float16).item()
    1.0009765625
    """
    if not dtype.is_floating_point or dtype.itemsize >= 4 or not values.is_floating_point():
        return values.to(dtype)
    near = values.float()
    back, bits = near.double(), near.view(torch.int32)
    bits = torch.where(back.abs() > values.abs(), bits - 1, bits)  # towards zero
    inexact = (back != values) & values.isfinite()
    return torch.where(inexact, bits | 1, bits).view(torch.float32).to(dtype)  # an odd last bit cannot be a middle


class Truth:
    """The formula of a call. Whole results are kept; an element-wise formula of large tensors is computed in pieces."""

    def __init__(
        self, operator: Operator, args: Sequence[Any], dtypes: Mapping[str, torch.dtype] | None = None
    ) -> None:
        """`dtypes` are those that outputs shall have, of the ones that the contract allows."""
        self.operator, self.spec, self.args = operator, operator.spec, list(args)
        call, produced = operator.judge(self.args, asked=True)
        if dtypes:
            wanted = [
                _of_dtype(meta, dtypes.get(name)) for name, meta in zip(self.spec.out_names, produced, strict=True)
            ]
            call, produced = operator.judge(self.args, wanted, asked=True)
        written = self.spec.written([call[arg.name] for arg in self.spec.args], produced)
        self.metas: dict[str, Any] = dict(zip(self.spec.written_names, written, strict=True))
        self._whole: dict[torch.dtype, list[Any]] = {}

    def members(self, name: str) -> list[tuple[str, Meta]]:
        """(label, metadata) of what a call writes under this name: a tensor, the members of a list, or nothing."""
        meta = self.metas[name]
        if isinstance(meta, Meta):
            return [(name, meta)]
        return [] if meta is None else [(f"{name}[{k}]", member) for k, member in enumerate(meta)]

    def is_optional(self, name: str) -> bool:
        """Whether a caller may leave this output out: the document's caller asks for it by giving it memory."""
        param = self.spec.params[name]
        return isinstance(param, Out) and param.asked_by is not None

    def precision(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype that the ulp of an output of `dtype` are counted in."""
        return precision(self.spec, self.args, name, dtype)

    def naive_run(self, name: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the naive run for an output of `dtype`."""
        return naive_run(self.spec, self.args, name, dtype, call_dtype(self.spec, self.args))

    def flat(self, name: str, member: int, dtype: torch.dtype = torch.float64) -> Flat:
        """The elements of an output by the formula, computed in a dtype."""
        index = self.spec.written_names.index(name)
        if self._by_pieces:

            def piece(start: int, stop: int) -> Tensor:
                args = [arg.reshape(-1)[start:stop] if isinstance(arg, Tensor) else arg for arg in self.args]
                result: Tensor = formula(self.spec, args, dtype)[index]
                return result.to(dtype) if result.is_floating_point() else result

            return piece
        return flat(self.whole(name, dtype)[member])

    def whole(self, name: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        """An output as `members` names them, by the formula computed in a dtype."""
        if dtype not in self._whole:
            self._whole[dtype] = formula(self.spec, self.args, dtype)
        result = self._whole[dtype][self.spec.written_names.index(name)]
        found = result if isinstance(result, list | tuple) else [result]
        return [each.to(dtype) if each.is_floating_point() else each for each in found]

    @cached_property
    def _by_pieces(self) -> bool:
        """Whether the formula is large and looks at no element but those at the place it computes."""
        spec, tensors = self.spec, [arg for arg in self.args if isinstance(arg, Tensor)]
        alone = all(isinstance(arg, Tensor) or not isinstance(arg, list | tuple) for arg in self.args)
        by_element = spec.pointwise or not spec.outs
        same = len({tuple(tensor.shape) for tensor in tensors}) == 1
        return alone and by_element and same and tensors[0].numel() >= LARGE


def _of_dtype(meta: Any, dtype: torch.dtype | None) -> Any:
    """What stands for an output of this metadata, or for a list of them, in a dtype."""
    if meta is None:
        return None
    if not isinstance(meta, Meta):
        return [_of_dtype(member, dtype) for member in meta]
    return SimpleNamespace(meta=meta if dtype is None else meta._replace(dtype=dtype))
