"""Named inputs of the family: borders first, then what people run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import (
    ANY_FORMAT,
    BENCH,
    BENCH_GPU,
    DOCUMENT,
    EDGE,
    NCHW,
    PYTHON_ONLY,
    REAL,
    SMOKE,
    Case,
    Data,
    Invalid,
    Suite,
)

DTYPES = (F32, F16, BF16, F64)


def _products(n: int, hidden: int, *, bias: bool = True, scale: float = 1.0) -> Callable[[Data], Sequence[Any]]:
    """Products and biases of an order that leaves most gates between their ends; at a large scale few are."""

    def make(data: Data) -> Sequence[Any]:
        gates = [data.normal(n, 4 * hidden, scale=scale) for _ in range(2)]
        biases = [data.normal(4 * hidden) if bias else None for _ in range(2)]
        return (*gates, data.normal(n, hidden), *biases)

    return make


def _saved(
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


SIZED = {
    "lstm_cell": lambda N, H, *, bias=True: _products(N, H, bias=bias),
    "lstm_cell_backward": lambda N, H, *, bias=True: _saved(N, H, bias=bias),
}


def _document(data: Data) -> Sequence[Any]:
    ones = torch.ones(1, 8, dtype=data.dtype)
    return ones, ones.clone(), ones.clone(), ones.clone(), torch.ones(1, 32, dtype=data.dtype), True


def _document_prints() -> Sequence[Any]:
    return [torch.zeros(1, 32), torch.full((1, 8), 1.419974), torch.zeros(32)]


FORWARD = (
    Case("small", _products(3, 5), DTYPES, frozenset({SMOKE})),
    Case("one_past_a_block", _products(9, 129), DTYPES, frozenset({EDGE})),
    Case("no_bias", _products(4, 6, bias=False), DTYPES, frozenset({SMOKE})),
    Case("saturated", _products(9, 33, scale=40.0), DTYPES, frozenset({EDGE})),
    Case("single", _products(1, 1), DTYPES, frozenset({EDGE})),
    Case("one_row", _products(1, 1031), (F32, F16), frozenset({EDGE})),
    Case("one_unit", _products(1031, 1, bias=False), (F32, F16), frozenset({EDGE})),
    Case("many_rows", _products(1030, 17), DTYPES, frozenset({EDGE})),
    Case("empty_batch", _products(0, 4), DTYPES, frozenset({EDGE})),
    Case("no_hidden", _products(3, 0), DTYPES, frozenset({EDGE})),
    Case("B256_H512", _products(256, 512), (F32, F16), frozenset({REAL})),
    Case("B64_H512", _products(64, 512), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("B1024_H1024", _products(1024, 1024), (F32, F16, BF16), frozenset({BENCH})),
    Case("B8192_H2048", _products(8192, 2048), (F32, F16, BF16), frozenset({BENCH_GPU})),
    Case("B32768_H1024", _products(32768, 1024), (F32, F16, BF16), frozenset({BENCH_GPU})),
)

BACKWARD = (
    Case("small", _saved(3, 5), DTYPES, frozenset({SMOKE})),
    Case("one_past_a_block", _saved(65, 129), DTYPES, frozenset({EDGE})),
    Case("no_bias", _saved(4, 6, bias=False), DTYPES, frozenset({EDGE})),
    Case("no_grad_hy", _saved(4, 6, hy=False), DTYPES, frozenset({EDGE})),
    Case("no_grad_c", _saved(4, 6, c=False), DTYPES, frozenset({EDGE})),
    Case("single", _saved(1, 1), DTYPES, frozenset({EDGE})),
    Case("some_rows", _saved(130, 9), (F32, F16), frozenset({EDGE})),
    Case("many_rows", _saved(1030, 17), DTYPES, frozenset({EDGE})),
    Case("empty_batch", _saved(0, 4), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("no_hidden", _saved(3, 0), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("document", _document, (F32,), frozenset({DOCUMENT}), expected=_document_prints),
    Case("B256_H512", _saved(256, 512), (F32, F16), frozenset({REAL})),
    Case("B64_H512", _saved(64, 512), (F32, F16, BF16), frozenset({BENCH, BENCH_GPU})),
    Case("B1024_H1024", _saved(1024, 1024), (F32, F16, BF16), frozenset({BENCH})),
    Case("B8192_H2048", _saved(8192, 2048), (F32, F16, BF16), frozenset({BENCH_GPU})),
    Case("B32768_H1024", _saved(32768, 1024), (F32, F16, BF16), frozenset({BENCH_GPU})),
)

STATES = ("grad_hy", "grad_c", "cx", "cy")
OUTPUTS = ("grad_gates", "grad_cx", "grad_bias")

PRODUCTS = ("input_gates", "hidden_gates")
BIASES = ("input_bias", "hidden_bias")
RESULTS = ("hy", "cy", "storage")
EVERYTHING = (*PRODUCTS, "cx", *BIASES, *RESULTS)

INVALID_FORWARD = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in (*PRODUCTS, "cx", *BIASES)),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in RESULTS),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in EVERYTHING),
    *(
        Invalid(f"{name}_shape", {name: lambda t: t[..., :-1]}, InvalidArgument, name)
        for name in (*PRODUCTS, *BIASES, *RESULTS)
    ),
    Invalid("cx_shape", {"cx": lambda t: t[..., :-1]}, InvalidArgument, "input_gates"),
    Invalid("hidden_gates_would_broadcast", {"hidden_gates": lambda t: t[:1]}, InvalidArgument, "hidden_gates"),
    *(Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name) for name in EVERYTHING),
    *(
        Invalid(f"all_{name}", dict.fromkeys(EVERYTHING, cast), InvalidArgument, "input_gates", ("aclnn",))
        for name, cast in (("bfloat16", torch.Tensor.bfloat16), ("double", torch.Tensor.double))
    ),
    *(
        Invalid(f"{name}_of_another_dtype", {name: lambda t: t.half()}, InvalidArgument, name)
        for name in EVERYTHING[1:]
    ),
    Invalid("cy_expanded", {"cy": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "cy"),
)

INVALID_BACKWARD = (
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


SUITES = {
    "lstm_cell": Suite(FORWARD, INVALID_FORWARD, main="cx", formats=ANY_FORMAT),
    "lstm_cell_backward": Suite(BACKWARD, INVALID_BACKWARD, main="cx", refused_formats=(NCHW,)),
}
