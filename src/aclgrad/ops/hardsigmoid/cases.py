"""Named inputs of the family: borders first, then what people run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, DOCUMENT, EDGE, REAL, SMOKE, Case, Cost, Data, Invalid, bytes_moved

DTYPES = (F32, F16, BF16, F64)
KINKS = (-3.0, 3.0, -2.998, 2.998, -3.002, 3.002, -0.0, 0.0, 65504.0, torch.inf, -torch.inf, torch.nan)


def _pair(*shape: int) -> Callable[[Data], Sequence[Any]]:
    """Gradients of order one over inputs on both sides of the kinks."""
    return lambda data: (data.normal(*shape), data.normal(*shape, scale=3.0))


def _kinks(data: Data) -> Sequence[Any]:
    """Every kink meets every kind of gradient; next to ±3 also the closest numbers the dtype has."""
    x = torch.tensor(KINKS, dtype=data.dtype)
    ends = torch.tensor([3.0, -3.0], dtype=data.dtype)
    x = torch.cat([x, torch.nextafter(ends, torch.zeros_like(ends)), torch.nextafter(ends, 2 * ends)])
    grads = torch.tensor([1.0, -2.5, 0.0, torch.inf, -torch.inf, torch.nan], dtype=data.dtype)
    return grads.repeat_interleave(len(x)), x.repeat(len(grads))


def _document(data: Data) -> Sequence[Any]:
    x = torch.arange(8, dtype=data.dtype).view(4, 2)
    return x, x.clone()


CASES = (
    Case("matrix", _pair(7, 9), DTYPES, frozenset({SMOKE})),
    Case("scalar", _pair(), DTYPES, frozenset({SMOKE})),
    Case("ragged_tail", _pair(1025), DTYPES, frozenset({EDGE})),
    Case("several_threads", _pair(3, 70_001), (F32, F16), frozenset({EDGE})),
    Case("rank8", _pair(1, 2, 1, 3, 1, 2, 2, 3), DTYPES, frozenset({EDGE})),
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

INVALID = (
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
        InvalidArgument, "grad_output",
    ),
    Invalid(
        "bf16_on_an_old_chip", {"x": lambda t: t.bfloat16()}, InvalidArgument, "x", ("aclnn",),
        environment={"ACLGRAD_SOC": "Ascend310P"},
    ),
    Invalid("out_expanded", {"out": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "out"),
)  # fmt: skip


def cost(args: Sequence[Any], outs: Sequence[Any]) -> Cost:
    """Two tensors read, one written."""
    return Cost(bytes=bytes_moved(args, outs), flops=0)
