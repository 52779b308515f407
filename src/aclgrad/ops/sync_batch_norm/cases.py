"""Named inputs of the family: borders first, then what people run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, DOCUMENT, EDGE, REAL, SMOKE, Case, Cost, Data, Invalid, bytes_moved
from ...testing.layouts import channels_last

DTYPES = (F32, F16, BF16, F64)


def _batch(
    *shape: int,
    weight: bool = True,
    counter: torch.Tensor | None = None,
    last: bool = False,
    vectors: torch.dtype = F32,
) -> Callable[[Data], Sequence[Any]]:
    """A batch away from zero mean, with statistics and sums of the sizes a real one has."""

    def make(data: Data) -> Sequence[Any]:
        channels, wide = shape[1], F64 if data.dtype == F64 else vectors
        count = max(1, data.normal(*shape).numel() // channels)
        grad_out, x = data.normal(*shape), data.normal(*shape, scale=2.0) + 0.5
        if last:
            grad_out, x = channels_last(grad_out), channels_last(x)
        return (
            grad_out, x,
            data.normal(channels, dtype=wide), data.uniform(0.3, 2, channels, dtype=wide),
            data.normal(channels, dtype=wide) if weight else None,
            data.normal(channels, scale=count, dtype=wide), data.normal(channels, scale=count, dtype=wide),
            torch.tensor([count, count], dtype=torch.int32) if counter is None else counter,
        )  # fmt: skip

    return make


def _document(data: Data) -> Sequence[Any]:
    x = torch.arange(8, dtype=data.dtype).view(2, 2, 2)
    zeros, ones = torch.zeros(2, dtype=data.dtype), torch.ones(2, dtype=data.dtype)
    return x, x.clone(), zeros, ones, ones.clone(), zeros.clone(), ones.clone(), torch.tensor([5, 5], dtype=torch.int32)


CASES = (
    Case("NCHW", _batch(3, 5, 4, 6), DTYPES, frozenset({SMOKE})),
    Case("NC", _batch(7, 5), DTYPES, frozenset({SMOKE})),
    Case("NCL_no_weight", _batch(2, 3, 9, weight=False), DTYPES, frozenset({EDGE})),
    Case("channels_last", _batch(2, 17, 5, 3, last=True), DTYPES, frozenset({EDGE})),
    Case("one_past_a_block", _batch(2, 3, 1025), DTYPES, frozenset({EDGE})),
    Case("several_threads", _batch(4, 33, 31, 29), (F32, BF16), frozenset({EDGE})),
    Case("rank8", _batch(2, 3, 1, 2, 1, 2, 1, 2), DTYPES, frozenset({EDGE})),
    Case("one_channel", _batch(5, 1, 7), DTYPES, frozenset({EDGE})),
    Case("empty_batch", _batch(0, 3, 4), DTYPES, frozenset({EDGE})),
    Case("half_vectors", _batch(3, 5, 4, vectors=F16), (F16,), frozenset({EDGE})),
    Case("scalar_counter", _batch(3, 5, 4, counter=torch.tensor(12.0)), DTYPES, frozenset({EDGE})),
    Case(
        "half_counter_of_rank3", _batch(3, 5, 4, counter=torch.full((1, 2, 3), 2.0).half()), DTYPES, frozenset({EDGE})
    ),
    Case("empty_counter", _batch(3, 5, 4, counter=torch.zeros(0)), DTYPES, frozenset({EDGE})),
    Case("document", _document, (F32,), frozenset({DOCUMENT}), expected=lambda: [torch.arange(8).view(2, 2, 2) * 0.9]),
    Case("resnet_NCHW", _batch(32, 256, 14, 14), (F32, F16, BF16), frozenset({REAL, BENCH})),
    Case("resnet_NHWC", _batch(32, 256, 14, 14, last=True), (F32, F16, BF16), frozenset({BENCH})),
    Case("early_NCHW", _batch(8, 64, 56, 56), (F32, F16, BF16), frozenset({BENCH})),
    Case("early_NHWC", _batch(8, 64, 56, 56, last=True), (F32, F16, BF16), frozenset({BENCH})),
    *(
        Case(f"{n}x{c}x{size}_{layout}", _batch(n, c, size, size, last=last), (F32, F16, BF16), frozenset({BENCH_GPU}))
        for n, c, size in ((64, 256, 56), (32, 64, 224), (256, 2048, 7))
        for layout, last in (("NCHW", False), ("NHWC", True))
    ),
)

VECTORS = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")
BATCHES = ("grad_out", "input", "grad_input")

INVALID = (
    *(
        Invalid(f"{name}_null", {name: None}, NullArgument, name)
        for name in ("grad_out", "input", "mean", "invstd", "sum_dy", "sum_dy_xmu", "counter")
    ),
    Invalid("grad_input_null", {"grad_input": None}, NullArgument, "grad_input", ("aclnn",)),
    *(Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name) for name in (*BATCHES, *VECTORS)),
    *(
        Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name, ("aclnn",))
        for name in (*BATCHES, *VECTORS)
    ),
    Invalid("counter_int64", {"counter": lambda t: t.long()}, InvalidArgument, "counter", ("aclnn",)),
    Invalid("counter_bfloat16", {"counter": lambda t: t.bfloat16()}, InvalidArgument, "counter", ("aclnn",)),
    Invalid("counter_bool", {"counter": lambda t: t.bool()}, InvalidArgument, "counter"),
    Invalid("rank1", {name: lambda t: t[0, :, 0, 0] for name in BATCHES}, InvalidArgument, "input"),
    Invalid("rank9", {name: lambda t: t.reshape(*t.shape, *[1] * 5) for name in BATCHES}, InvalidArgument, "input"),
    Invalid("grad_out_rank9", {"grad_out": lambda t: t.reshape(*t.shape, *[1] * 5)}, InvalidArgument, "grad_out"),
    Invalid("grad_input_rank9", {"grad_input": lambda t: t.reshape(*t.shape, *[1] * 5)}, InvalidArgument, "grad_input"),
    Invalid("counter_rank9", {"counter": lambda t: t.view(*[1] * 8, -1)}, InvalidArgument, "counter"),
    Invalid("no_channels", {name: lambda t: t[:, :0] for name in BATCHES}, InvalidArgument, "input"),
    Invalid("grad_out_shape", {"grad_out": lambda t: t[:-1]}, InvalidArgument, "grad_out"),
    Invalid("grad_input_shape", {"grad_input": lambda t: t[:-1]}, InvalidArgument, "grad_input"),
    *(Invalid(f"{name}_length", {name: lambda t: t[:-1]}, InvalidArgument, name) for name in VECTORS),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in VECTORS),
    Invalid("grad_input_expanded", {"grad_input": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "grad_input"),
)


def cost(args: Sequence[Any], outs: Sequence[Any]) -> Cost:
    """Two batches read, one written."""
    return Cost(bytes=bytes_moved(args, outs), flops=0)
