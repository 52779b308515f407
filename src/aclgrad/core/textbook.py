"""An operator as its textbook writes it, in torch's own operations: slow, and right in whatever mode torch is.

Derivatives that no kernel has are taken of it: second ones, those of operators that nobody trains with, forward mode.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

import torch

from .autograd import Formula
from .memory import tensors_in
from .meta import contiguous_strides
from .plan import Operator


@cache
def textbook(operator: Operator) -> Formula:
    """A function of all arguments that returns the outputs, None for those not produced, then what is updated."""
    return partial(by_the_book, operator)


def by_the_book(operator: Operator, *args: Any, asked: bool = False) -> tuple[Any, ...]:
    """What `textbook` gives for these; outputs that have to be `asked` for are, if so."""
    spec = operator.spec
    reference: Formula = getattr(importlib.import_module(f"{spec.package}.reference"), spec.name)
    call, produced = operator.judge(args, asked=asked)
    wide = torch.float32
    for tensor in tensors_in(args):
        if tensor.is_floating_point():
            wide = torch.promote_types(wide, tensor.dtype)
    results = reference(*[_converted(value, wide) for value in args], **spec.reference_options(call))
    found = results if isinstance(results, tuple) else (results,)
    outs = [None if meta is None else _as(meta, result) for meta, result in zip(produced, found, strict=False)]
    updated = zip(spec.updated, found[len(outs) :], strict=True)
    return *outs, *(None if args[k] is None else new.to(args[k].dtype) for k, new in updated)


def _converted(value: Any, dtype: torch.dtype) -> Any:
    """Floating-point tensors, also inside lists, in a dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return [_converted(member, dtype) for member in value] if isinstance(value, list | tuple) else value


def _as(meta: Any, result: Any) -> Any:
    """A result, or a list of them, in the dtypes of the contract, and gapless where that has it so: to be viewed."""
    if isinstance(result, torch.Tensor):
        result = result.to(meta.dtype)
        return result.contiguous() if meta.strides == contiguous_strides(meta.shape) else result
    return [_as(member, part) for member, part in zip(meta, result, strict=True)]
