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
    textbook = getattr(importlib.import_module(f"{spec.package}.reference"), spec.name)
    return list(_sequence(textbook(*[widen(arg, dtype) for arg in args])))


def verdicts(
    spec: OpSpec, args: Sequence[Any], written: Sequence[Any], dtype: torch.dtype
) -> Iterator[tuple[str, Verdict]]:
    """(name, verdict) of every tensor a call of this dtype wrote; None where it did not.

    The naive run is made in the dtype of the call; for a result that is wider, and that the contract does not round to
    the narrow one on the way, in its own.
    """
    truth = formula(spec, args, torch.float64)
    naive = cache(lambda dtype: formula(spec, args, dtype))
    by_name = dict(zip((arg.name for arg in spec.args), args, strict=True))
    for index, (name, found, true) in enumerate(zip(spec.written_names, written, truth, strict=True)):
        param = spec.params[name]
        coarse = by_name[param.rounded_as].dtype if isinstance(param, Out) and param.rounded_as else None
        if found is None:
            continue
        plainly = naive_dtype(dtype if coarse else _wider(dtype, _members(found)))
        members = zip(_members(found), _members(true), _members(naive(plainly)[index]), strict=True)
        for k, (result, expected, plain) in enumerate(members):
            label = f"{name}[{k}]" if isinstance(found, list | tuple) else name
            if result.shape != expected.shape:
                raise AssertionError(f"{label}: shape {tuple(result.shape)}, expected {tuple(expected.shape)}")
            narrow = plain.to(plainly) if plain.is_floating_point() else plain
            yield label, judge(result, expected, narrow, coarse)


def _wider(dtype: torch.dtype, results: Sequence[Tensor]) -> torch.dtype:
    """The dtype of the results if they are floating-point numbers of higher precision, else the first one."""
    other = next((result.dtype for result in results if result.is_floating_point()), dtype)
    return other if dtype.is_floating_point and torch.finfo(other).eps < torch.finfo(dtype).eps else dtype


def _copy(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _sequence(results: Any) -> Sequence[Any]:
    return results if isinstance(results, list | tuple) else [results]


def _members(value: Any) -> Sequence[Tensor]:
    return value if isinstance(value, list | tuple) else [value]
