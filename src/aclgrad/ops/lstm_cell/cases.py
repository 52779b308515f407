"""Named inputs of the family: borders first, then what people run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, DOCUMENT, EDGE, REAL, SMOKE, Case, Cost, Data, Invalid, bytes_moved

DTYPES = (F32, F16, BF16, F64)


def _cell(
    n: int, hidden: int, *, bias: bool = True, hy: bool = True, c: bool = True
) -> Callable[[Data], Sequence[Any]]:
    """Activated gates in their ranges, states and gradients of order one."""

    def make(data: Data) -> Sequence[Any]:
        sigmoids = [data.uniform(0, 1, n, hidden) for _ in "ifo"]
        candidate = data.uniform(-1, 1, n, hidden)
        storage = torch.cat([sigmoids[0], sigmoids[1], candidate, sigmoids[2]], dim=1)
        states = [data.normal(n, hidden) for _ in range(4)]
        return (states[0] if hy else None, states[1] if c else None, states[2], states[3], storage, bias)

    return make


def _document(data: Data) -> Sequence[Any]:
    ones = torch.ones(1, 8, dtype=data.dtype)
    return ones, ones.clone(), ones.clone(), ones.clone(), torch.ones(1, 32, dtype=data.dtype), True


def _document_prints() -> Sequence[Any]:
    return [torch.zeros(1, 32), torch.full((1, 8), 1.419974), torch.zeros(32)]


CASES = (
    Case("small", _cell(3, 5), DTYPES, frozenset({SMOKE})),
    Case("one_past_a_block", _cell(65, 129), DTYPES, frozenset({EDGE})),
    Case("no_bias", _cell(4, 6, bias=False), DTYPES, frozenset({EDGE})),
    Case("no_grad_hy", _cell(4, 6, hy=False), DTYPES, frozenset({EDGE})),
    Case("no_grad_c", _cell(4, 6, c=False), DTYPES, frozenset({EDGE})),
    Case("single", _cell(1, 1), DTYPES, frozenset({EDGE})),
    Case("some_rows", _cell(130, 9), (F32, F16), frozenset({EDGE})),
    Case("many_rows", _cell(1030, 17), DTYPES, frozenset({EDGE})),
    Case("empty_batch", _cell(0, 4), DTYPES, frozenset({EDGE, "python_only"})),
    Case("no_hidden", _cell(3, 0), DTYPES, frozenset({EDGE, "python_only"})),
    Case("document", _document, (F32,), frozenset({DOCUMENT}), expected=_document_prints),
    Case("B256_H512", _cell(256, 512), (F32, F16), frozenset({REAL})),
    Case("B64_H512", _cell(64, 512), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("B1024_H1024", _cell(1024, 1024), (F32, F16, BF16), frozenset({BENCH})),
    Case("B8192_H2048", _cell(8192, 2048), (F32, F16, BF16), frozenset({BENCH_GPU})),
    Case("B32768_H1024", _cell(32768, 1024), (F32, F16, BF16), frozenset({BENCH_GPU})),
)

STATES = ("grad_hy", "grad_c", "cx", "cy")
OUTPUTS = ("grad_gates", "grad_cx", "grad_bias")

INVALID = (
    Invalid("both_gradients_null", {"grad_hy": None, "grad_c": None}, NullArgument, "grad_hy"),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("cx", "cy", "storage")),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in OUTPUTS),
    Invalid(
        "grad_bias_null_without_bias", {"grad_bias": None, "has_bias": False}, NullArgument, "grad_bias", ("aclnn",)
    ),
    *(
        Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
        for name in (*STATES, "storage", *OUTPUTS)
    ),
    Invalid(
        "all_bfloat16", {name: lambda t: t.bfloat16() for name in (*STATES, "storage", *OUTPUTS)},
        InvalidArgument, "grad_hy", ("aclnn",),
    ),
    Invalid(
        "all_double", {name: lambda t: t.double() for name in (*STATES, "storage", *OUTPUTS)},
        InvalidArgument, "grad_hy", ("aclnn",),
    ),
    *(
        Invalid(f"{name}_of_another_dtype", {name: lambda t: t.half()}, InvalidArgument, name)
        for name in ("grad_c", "cx", "cy", "storage", *OUTPUTS)
    ),
    Invalid("grad_bias_dtype_without_bias", {"grad_bias": lambda t: t.half(), "has_bias": False},
            InvalidArgument, "grad_bias", ("aclnn",)),
    Invalid("grad_hy_rank", {"grad_hy": lambda t: t[None]}, InvalidArgument, "grad_hy"),
    *(
        Invalid(f"{name}_shape", {name: lambda t: t[:, :-1]}, InvalidArgument, name)
        for name in ("grad_c", "cx", "cy", "storage", "grad_gates", "grad_cx")
    ),
    *(Invalid(f"{name}_rank", {name: lambda t: t[0]}, InvalidArgument, name) for name in ("cx", "storage")),
    Invalid("cy_would_broadcast", {"cy": lambda t: t[:1]}, InvalidArgument, "cy"),
    Invalid("grad_bias_shape", {"grad_bias": lambda t: t[:-1]}, InvalidArgument, "grad_bias"),
    Invalid("empty", {name: lambda t: t[:0] for name in (*STATES, "storage", "grad_gates", "grad_cx")},
            InvalidArgument, "grad_hy", ("aclnn",)),
    Invalid("grad_cx_expanded", {"grad_cx": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "grad_cx"),
)  # fmt: skip


def cost(args: Sequence[Any], outs: Sequence[Any]) -> Cost:
    """Eight row-blocks read, five written."""
    return Cost(bytes=bytes_moved(args, outs), flops=0)
