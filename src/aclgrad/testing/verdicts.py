"""From a call to its verdicts: what it wrote against the family's formula in float64."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..core.backends import widen
from ..core.plan import Operator
from ..core.spec import OpSpec, Out
from .tolerance import Verdict, judge, naive_dtype


def run(operator: Operator, args: Sequence[Any], backend: str | None = None) -> list[Any]:
    """What a call writes: its outputs, then what it updates in place, of which it gets a copy."""
    mine = own(operator.spec, args)
    return list(operator.spec.written(mine, _sequence(operator(*mine, backend=backend))))


def own(spec: OpSpec, args: Sequence[Any]) -> list[Any]:
    """The arguments, those that are updated in place as copies of the same layout."""
    return [_copy(arg) if k in spec.updated and arg is not None else arg for k, arg in enumerate(args)]


def formula(spec: OpSpec, args: Sequence[Any], dtype: torch.dtype) -> list[Any]:
    """What the textbook gives in a dtype for everything that a call writes."""
    return textbook(spec, [widen(arg, dtype) for arg in args])


def textbook(spec: OpSpec, args: Sequence[Any]) -> list[Any]:
    """The same of arguments as they are, which autograd may look at."""
    return list(_sequence(getattr(importlib.import_module(f"{spec.package}.reference"), spec.name)(*args)))


def verdicts(
    spec: OpSpec, args: Sequence[Any], written: Sequence[Any], dtype: torch.dtype
) -> Iterator[tuple[str, Verdict]]:
    """(name, verdict) of every tensor a call of this dtype wrote; None where it did not."""
    truth = formula(spec, args, torch.float64)
    naive = cache(lambda dtype: formula(spec, args, dtype))
    for index, (name, found, true) in enumerate(zip(spec.written_names, written, truth, strict=True)):
        if found is None:
            continue
        for k, (result, expected) in enumerate(zip(_members(found), _members(true), strict=True)):
            label = f"{name}[{k}]" if isinstance(found, list | tuple) else name
            if result.shape != expected.shape:
                raise AssertionError(f"{label}: shape {tuple(result.shape)}, expected {tuple(expected.shape)}")
            plainly = naive_run(spec, args, name, result.dtype, dtype)
            plain = _members(naive(plainly)[index])[k]
            narrow = plain.to(plainly) if plain.is_floating_point() else plain
            yield label, judge(result, expected, narrow, precision(spec, args, name, result.dtype))


def precision(spec: OpSpec, args: Sequence[Any], name: str, dtype: torch.dtype) -> torch.dtype:
    """The dtype that the ulp of a result are counted in: a coarser one than its own where the contract rounds to that
    on the way.
    """
    param = spec.params[name]
    if not isinstance(param, Out) or param.rounded_as is None:
        return dtype
    coarse: torch.dtype = args[[arg.name for arg in spec.args].index(param.rounded_as)].dtype
    return coarse


def naive_run(spec: OpSpec, args: Sequence[Any], name: str, dtype: torch.dtype, call: torch.dtype) -> torch.dtype:
    """The dtype of the naive run for a result of `dtype`, in a call of dtype `call`.

    It is the call's; for a result that is wider, and that the contract does not round to the narrow one on the way, its
    own.
    """
    wider = call.is_floating_point and dtype.is_floating_point and torch.finfo(dtype).eps < torch.finfo(call).eps
    return naive_dtype(dtype if wider and precision(spec, args, name, dtype) == dtype else call)


def _copy(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _sequence(results: Any) -> Sequence[Any]:
    return results if isinstance(results, list | tuple) else [results]


def _members(value: Any) -> Sequence[Tensor]:
    return value if isinstance(value, list | tuple) else [value]
