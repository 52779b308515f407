"""A call to show: arguments of one of an operator's cases, and what they are as expressions of Python and of C."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from aclgrad.core.memory import tensors_in
from aclgrad.core.meta import Meta, dtype_name
from aclgrad.core.plan import Operator
from aclgrad.core.spec import Param
from aclgrad.frontends.acl.enums import ACL_DATA_TYPES
from aclgrad.testing.cases import SMOKE, is_documented, suite

MANY = 12  # tensors of a call, counts of a tensor


class Sample(NamedTuple):
    """Arguments in the contract's order, and outputs without memory, those too that are given and not produced."""

    arguments: list[Any]
    outs: list[Any]


@cache
def sample(operator: Operator) -> Sample:
    """The first smoke case that is not large, in a dtype that the document knows, if a document knows the operator."""
    spec, built = operator.spec, []
    for case in suite(spec).cases:
        dtype = next((dtype for dtype in case.dtypes if is_documented(spec, case, dtype)), case.dtypes[0])
        if SMOKE in case.tags and (not spec.aclnn or is_documented(spec, case, dtype)):
            built.append(case.build(dtype))
    few = next((arguments for arguments in built if _count(arguments) <= MANY), None)
    arguments = few or min(built, key=_count)
    call, produced = operator.judge(arguments, asked=True)
    metas = [out.meta(call) if meta is None else meta for out, meta in zip(spec.outs, produced, strict=True)]
    return Sample(arguments, [_without_memory(meta) for meta in metas])


def _count(values: Sequence[Any]) -> int:
    return len(list(tensors_in(values)))


def _without_memory(meta: Any) -> Any:
    if isinstance(meta, Meta):
        return torch.empty(meta.shape, dtype=meta.dtype, device="meta")
    return [_without_memory(member) for member in meta]


def is_list(value: Any) -> bool:
    """Whether it is a list of tensors."""
    return isinstance(value, list | tuple) and any(isinstance(member, torch.Tensor) for member in value)


def shape_of(value: Any) -> str:
    """The shape of a tensor, or how many of a list have which; empty for what is neither."""
    if isinstance(value, torch.Tensor):
        return str(list(value.shape))
    if is_list(value):
        shapes = [str(list(member.shape)) for member in value]
        return " ".join(f"{shapes.count(shape)} × {shape}" for shape in dict.fromkeys(shapes))
    return ""


def drawn(tensor: torch.Tensor) -> str:
    """An expression for a tensor of the same shape and dtype whose values lie where its values lie."""
    shape, kind = _shape_and_dtype(tensor)
    low, high = (float(end) for end in (tensor.min(), tensor.max()))
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.5"
    if not tensor.is_floating_point():
        comma = "," if tensor.dim() == 1 else ""
        if tensor.dtype == torch.uint8:  # bits
            low, high = 0, 255
        elif low == high:
            return f"torch.full(({shape}{comma}), {int(low)}{kind})"
        elif tensor.dim() == 1 and len(tensor) <= MANY and tensor.tolist() == sorted(tensor.tolist(), reverse=True):
            return f"torch.tensor({tensor.tolist()}{kind})"  # counts of a batch's sequences, which cannot be any
        return f"torch.randint({max(int(low), 0)}, {int(high) + 1}, ({shape}{comma}){kind})"
    if low < 0:
        return f"torch.randn({shape}{kind})"
    if high <= 1:
        return f"torch.rand({shape}{kind})"
    return f"torch.empty({shape}{kind}).uniform_({_rounded(low)}, {_rounded(high)})"


def empty(tensor: torch.Tensor) -> str:
    """An expression for memory of a tensor's shape and dtype."""
    shape, kind = _shape_and_dtype(tensor)
    return f"torch.empty({shape}{kind})"


def _shape_and_dtype(tensor: torch.Tensor) -> tuple[str, str]:
    default = torch.int64 if not tensor.is_floating_point() and not tensor.is_meta else torch.float32
    kind = "" if tensor.dtype == default else f", dtype=torch.{dtype_name(tensor.dtype)}"
    return ", ".join(map(str, tensor.shape)) or "()", kind


def _rounded(number: float) -> str:
    return f"{number:.2g}" if number < 1 else f"{number:.0f}"


def in_c(tensor: torch.Tensor) -> str:
    """The call of the examples' function `tensor` that makes one of this shape and dtype."""
    shape = ", ".join(map(str, tensor.shape)) or "1"
    kind = ACL_DATA_TYPES[tensor.dtype].name
    return f"tensor({kind}, {tensor.element_size()}, {tensor.dim()}, (int64_t[]){{{shape}}})"


def number_in_c(value: Any) -> str:
    """A number, a flag or nothing as C writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "NULL" if value is None else repr(value)


def named(param: Param, in_document: bool) -> str:
    """A parameter's name in the document or in Python."""
    return param.aclnn if in_document else param.name
