"""Named inputs of the family: borders first, then what people run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64, I32
from ...testing.cases import (
    ANY_FORMAT,
    BENCH,
    BENCH_GPU,
    DOCUMENT,
    EDGE,
    FRACTAL_NZ,
    PYTHON_ONLY,
    REAL,
    SMOKE,
    Case,
    Data,
    Invalid,
    Suite,
    bytes_moved,
)

DTYPES = (F32, F16, BF16, F64)
NUMBERS = (*DTYPES, I32)
KINKS = (-3.0, 3.0, -2.998, 2.998, -3.002, 3.002, -0.0, 0.0, 65504.0, torch.inf, -torch.inf, torch.nan)


def _pair(*shape: int) -> Callable[[Data], Sequence[Any]]:
    """Gradients of order one over inputs on both sides of the kinks."""
    return lambda data: (data.normal(*shape), data.normal(*shape, scale=3.0))


def _one(*shape: int) -> Callable[[Data], Sequence[Any]]:
    """Inputs on both sides of the kinks."""
    return lambda data: (data.normal(*shape, scale=3.0),)


SIZED = {"hardsigmoid": _one, "hardsigmoid_": _one, "hardsigmoid_backward": _pair}


def _near_kinks(data: Data) -> torch.Tensor:
    """Every kink; next to ±3 also the closest numbers the dtype has."""
    x = torch.tensor(KINKS, dtype=data.dtype)
    ends = torch.tensor([3.0, -3.0], dtype=data.dtype)
    return torch.cat([x, torch.nextafter(ends, torch.zeros_like(ends)), torch.nextafter(ends, 2 * ends)])


def _integers(data: Data) -> Sequence[Any]:
    ends = torch.iinfo(data.dtype)
    return (torch.tensor([*range(-9, 10), ends.min, ends.min + 1, ends.max - 1, ends.max], dtype=data.dtype),)


def _kinks(data: Data) -> Sequence[Any]:
    """Every kink meets every kind of gradient."""
    x = _near_kinks(data)
    grads = torch.tensor([1.0, -2.5, 0.0, torch.inf, -torch.inf, torch.nan], dtype=data.dtype)
    return grads.repeat_interleave(len(x)), x.repeat(len(grads))


def _document(data: Data) -> Sequence[Any]:
    x = torch.arange(8, dtype=data.dtype).view(4, 2)
    return x, x.clone()


FORWARD = (
    Case("matrix", _one(7, 9), NUMBERS, frozenset({SMOKE})),
    Case("scalar", _one(), NUMBERS, frozenset({SMOKE})),
    Case("ragged_tail", _one(1025), NUMBERS, frozenset({EDGE})),
    Case("several_threads", _one(3, 70_001), (F32, F16, I32), frozenset({EDGE})),
    Case("rank8", _one(1, 2, 1, 3, 1, 2, 2, 3), NUMBERS, frozenset({EDGE})),
    Case("rank9", _one(2, 1, 2, 1, 3, 1, 2, 2, 3), NUMBERS, frozenset({EDGE, PYTHON_ONLY})),
    Case("empty", _one(0, 5), NUMBERS, frozenset({EDGE})),
    Case("kinks", lambda data: (_near_kinks(data),), DTYPES, frozenset({EDGE})),
    Case("integers", _integers, (I32,), frozenset({EDGE})),
    Case("activations", _one(32, 256, 14, 14), (F32, F16, BF16), frozenset({REAL})),
    Case("1Ki", _one(1 << 10), (F32, F16, BF16), frozenset({BENCH})),
    Case("1Mi", _one(1 << 20), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("16Mi", _one(1 << 24), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("256Mi", _one(1 << 28), (F32, F16, BF16), frozenset({BENCH_GPU})),
)

BACKWARD = (
    Case("matrix", _pair(7, 9), DTYPES, frozenset({SMOKE})),
    Case("scalar", _pair(), DTYPES, frozenset({SMOKE})),
    Case("ragged_tail", _pair(1025), DTYPES, frozenset({EDGE})),
    Case("several_threads", _pair(3, 70_001), (F32, F16), frozenset({EDGE})),
    Case("rank8", _pair(1, 2, 1, 3, 1, 2, 2, 3), DTYPES, frozenset({EDGE})),
    Case("rank9", _pair(2, 1, 2, 1, 3, 1, 2, 2, 3), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("empty", _pair(0, 5), DTYPES, frozenset({EDGE})),
    Case("kinks", _kinks, DTYPES, frozenset({EDGE})),
    Case(
        "document", _document, (F32,), frozenset({DOCUMENT}),
        expected=lambda: [torch.tensor([0, 1 / 6, 2 / 6, 0, 0, 0, 0, 0]).view(4, 2)],
    ),
    Case("activations", _pair(32, 256, 14, 14), (F32, F16, BF16), frozenset({REAL})),
    Case("1Ki", _pair(1 << 10), (F32, F16, BF16), frozenset({BENCH})),
    Case("1Mi", _pair(1 << 20), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("16Mi", _pair(1 << 24), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("256Mi", _pair(1 << 28), (F32, F16, BF16), frozenset({BENCH_GPU})),
)  # fmt: skip

REFUSED_X = (
    Invalid("x_null", {"x": None}, NullArgument, "x"),
    Invalid("x_of_another_integer", {"x": lambda t: t.long()}, InvalidArgument, "x"),
    Invalid("x_bool", {"x": lambda t: t.bool()}, InvalidArgument, "x"),
)

INVALID_IN_PLACE = (
    *REFUSED_X,
    Invalid("x_double", {"x": lambda t: t.double()}, InvalidArgument, "x", ("aclnn",)),
    Invalid("rank9", {"x": lambda t: t.view(*[1] * 7, *t.shape)}, InvalidArgument, "x", ("aclnn",)),
    Invalid(
        "bf16_on_an_old_chip", {"x": lambda t: t.bfloat16()}, InvalidArgument, "x", ("aclnn",),
        environment={"ACLGRAD_SOC": "Ascend310P"},
    ),
    Invalid("x_expanded", {"x": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "x"),
)  # fmt: skip

INVALID_FORWARD = (
    *REFUSED_X,
    Invalid("out_null", {"out": None}, NullArgument, "out", doors=("aclnn",)),
    Invalid("all_double", dict.fromkeys(("x", "out"), torch.Tensor.double), InvalidArgument, "x", ("aclnn",)),
    Invalid(
        "rank9", {name: lambda t: t.view(*[1] * 7, *t.shape) for name in ("x", "out")},
        InvalidArgument, "x", ("aclnn",),
    ),
    Invalid(
        "bf16_on_an_old_chip", dict.fromkeys(("x", "out"), torch.Tensor.bfloat16), InvalidArgument, "x", ("aclnn",),
        environment={"ACLGRAD_SOC": "Ascend310P"},
    ),
    Invalid("out_of_another_dtype", {"out": lambda t: t.half()}, InvalidArgument, "out"),
    Invalid("out_integer", {"out": lambda t: t.int()}, InvalidArgument, "out"),
    Invalid("out_shape", {"out": lambda t: t[:-1]}, InvalidArgument, "out"),
    Invalid("out_expanded", {"out": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "out"),
)  # fmt: skip

INVALID_BACKWARD = (
    Invalid("grad_output_null", {"grad_output": None}, NullArgument, "grad_output"),
    Invalid("x_null", {"x": None}, NullArgument, "x"),
    Invalid("out_null", {"out": None}, NullArgument, "out", doors=("aclnn",)),
    Invalid("grad_output_integer", {"grad_output": lambda t: t.int()}, InvalidArgument, "grad_output"),
    Invalid("x_integer", {"x": lambda t: t.long()}, InvalidArgument, "x"),
    Invalid("grad_output_double", {"grad_output": lambda t: t.double()}, InvalidArgument, "grad_output", ("aclnn",)),
    Invalid("x_double", {"x": lambda t: t.double()}, InvalidArgument, "x", ("aclnn",)),
    Invalid("out_integer", {"out": lambda t: t.int()}, InvalidArgument, "out"),
    Invalid("out_bool", {"out": lambda t: t.bool()}, InvalidArgument, "out"),
    Invalid("x_shape", {"x": lambda t: t.t().contiguous()}, InvalidArgument, "x"),
    Invalid("x_would_broadcast", {"x": lambda t: t[:1]}, InvalidArgument, "x"),
    Invalid("out_shape", {"out": lambda t: t[:-1]}, InvalidArgument, "out"),
    Invalid(
        "rank9", {name: lambda t: t.view(*[1] * 7, *t.shape) for name in ("grad_output", "x", "out")},
        InvalidArgument, "grad_output", ("aclnn",),
    ),
    Invalid(
        "bf16_on_an_old_chip", {"x": lambda t: t.bfloat16()}, InvalidArgument, "x", ("aclnn",),
        environment={"ACLGRAD_SOC": "Ascend310P"},
    ),
    Invalid("out_expanded", {"out": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "out"),
)  # fmt: skip


def _in_place(args: Sequence[Any], outs: Sequence[Any]) -> int:  # noqa: ARG001  there are none
    """What is read is written."""
    return bytes_moved(args, args)


SUITES = {
    "hardsigmoid": Suite(FORWARD, INVALID_FORWARD, main="x", refused_formats=(FRACTAL_NZ,)),
    "hardsigmoid_": Suite(FORWARD, INVALID_IN_PLACE, main="x", moved=_in_place, formats=ANY_FORMAT),
    "hardsigmoid_backward": Suite(BACKWARD, INVALID_BACKWARD, main="x", formats=ANY_FORMAT),
}
