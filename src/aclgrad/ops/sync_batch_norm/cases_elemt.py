"""Named inputs of the element-wise operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.rules import ND
from ...core.spec import F16, F32
from ...testing.cases import DOCUMENT, FRACTAL_NZ, NCDHW, NCHW, NCL, NHWC, Case, Data, Invalid, Suite
from .cases_batches import Batch, batch, case, cases, wide

OLD_CHIP = {"ACLGRAD_SOC": "Ascend310P"}


def _forward(
    affine: tuple[bool, bool] = (True, True), vectors: torch.dtype | None = None
) -> Callable[[Batch, Data], Sequence[Any]]:
    """Statistics of the sizes a real batch has; with weight and bias or without."""

    def make(here: Batch, data: Data) -> Sequence[Any]:
        dtype, c = vectors or wide(data), here.channels
        weight, bias = (data.normal(c, dtype=dtype) if given else None for given in affine)
        return here.x(data), weight, bias, data.normal(c, dtype=dtype), data.uniform(0.3, 2, c, dtype=dtype), 1e-5

    return make


def _backward(
    weight: bool = True, counter: torch.Tensor | None = None, vectors: torch.dtype | None = None
) -> Callable[[Batch, Data], Sequence[Any]]:
    """Statistics and sums of the sizes a real batch has."""

    def make(here: Batch, data: Data) -> Sequence[Any]:
        dtype, c, count = vectors or wide(data), here.channels, here.count
        return (
            here.grad(data), here.x(data),
            data.normal(c, dtype=dtype), data.uniform(0.3, 2, c, dtype=dtype),
            data.normal(c, dtype=dtype) if weight else None,
            data.normal(c, scale=count, dtype=dtype), data.normal(c, scale=count, dtype=dtype),
            torch.tensor([count, count], dtype=torch.int32) if counter is None else counter,
        )  # fmt: skip

    return make


def _document(data: Data) -> Sequence[Any]:
    x = torch.arange(8, dtype=data.dtype).view(2, 2, 2)
    zeros, ones = torch.zeros(2, dtype=data.dtype), torch.ones(2, dtype=data.dtype)
    return x, x.clone(), zeros, ones, ones.clone(), zeros.clone(), ones.clone(), torch.tensor([5, 5], dtype=torch.int32)


FORWARD = (
    *cases(_forward()),
    case(batch("NCL_no_weight", 2, 3, 9), _forward((False, True))),
    case(batch("NCL_no_bias", 2, 3, 9), _forward((True, False))),
    case(batch("NCL_statistics_alone", 2, 3, 9), _forward((False, False))),
    case(Batch("half_vectors", (3, 5, 4), dtypes=(F16,)), _forward(vectors=F16)),
)

BACKWARD = (
    *cases(_backward()),
    case(batch("NCL_no_weight", 2, 3, 9), _backward(weight=False)),
    case(Batch("half_vectors", (3, 5, 4), dtypes=(F16,)), _backward(vectors=F16)),
    case(batch("scalar_counter", 3, 5, 4), _backward(counter=torch.tensor(12.0))),
    case(batch("half_counter_of_rank3", 3, 5, 4), _backward(counter=torch.full((1, 2, 3), 2.0).half())),
    case(batch("empty_counter", 3, 5, 4), _backward(counter=torch.zeros(0))),
    Case("document", _document, (F32,), frozenset({DOCUMENT}), expected=lambda: [torch.arange(8).view(2, 2, 2) * 0.9]),
)


def _refused(batches: tuple[str, ...], vectors: tuple[str, ...], optional: tuple[str, ...]) -> tuple[Invalid, ...]:
    """What both directions refuse; the last of the batches is the output."""
    *inputs, out = batches
    return (
        *(
            Invalid(f"{name}_null", {name: None}, NullArgument, name)
            for name in (*inputs, *vectors)
            if name not in optional
        ),
        Invalid(f"{out}_null", {out: None}, NullArgument, out, ("aclnn",)),
        *(
            Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
            for name in (*batches, *vectors)
        ),
        *(
            Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name, ("aclnn",))
            for name in (*batches, *vectors)
        ),
        Invalid("rank1", {name: lambda t: t[0, :, 0, 0] for name in batches}, InvalidArgument, "input"),
        Invalid(
            "rank9",
            {name: lambda t: t.reshape(*t.shape, *[1] * 5) for name in batches},
            InvalidArgument,
            "input",
            ("aclnn",),
        ),
        Invalid(f"{out}_rank9", {out: lambda t: t.reshape(*t.shape, *[1] * 5)}, InvalidArgument, out),
        Invalid("no_channels", {name: lambda t: t[:, :0] for name in batches}, InvalidArgument, "input"),
        Invalid(f"{out}_shape", {out: lambda t: t[:-1]}, InvalidArgument, out),
        Invalid(f"{out}_expanded", {out: lambda t: t[:1].expand(t.shape)}, InvalidArgument, out),
        *(Invalid(f"{name}_length", {name: lambda t: t[:-1]}, InvalidArgument, name) for name in vectors),
        *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in vectors),
    )


INVALID_FORWARD = (
    *_refused(("input", "output"), ("weight", "bias", "mean", "invstd"), ("weight", "bias")),
    *(
        Invalid(
            f"{name}_bf16_on_an_old_chip", {name: lambda t: t.bfloat16()}, InvalidArgument, name, ("aclnn",), OLD_CHIP
        )
        for name in ("input", "weight", "invstd", "output")
    ),
)

INVALID_BACKWARD = (
    *_refused(("grad_out", "input", "grad_input"), ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu"), ("weight",)),
    Invalid("counter_null", {"counter": None}, NullArgument, "counter"),
    Invalid("counter_int64", {"counter": lambda t: t.long()}, InvalidArgument, "counter", ("aclnn",)),
    Invalid("counter_bfloat16", {"counter": lambda t: t.bfloat16()}, InvalidArgument, "counter", ("aclnn",)),
    Invalid("counter_bool", {"counter": lambda t: t.bool()}, InvalidArgument, "counter"),
    Invalid("counter_rank9", {"counter": lambda t: t.view(*[1] * 8, -1)}, InvalidArgument, "counter", ("aclnn",)),
    Invalid("grad_out_rank9", {"grad_out": lambda t: t.reshape(*t.shape, *[1] * 5)}, InvalidArgument, "grad_out"),
    Invalid("grad_out_shape", {"grad_out": lambda t: t[:-1]}, InvalidArgument, "grad_out"),
)

SUITES = {
    "batch_norm_elemt": Suite(FORWARD, INVALID_FORWARD, refused_formats=(FRACTAL_NZ,)),
    "batch_norm_elemt_backward": Suite(
        BACKWARD, INVALID_BACKWARD, formats=(NCHW, NHWC, ND, NCDHW, NCL), refused_formats=(FRACTAL_NZ,)
    ),
}
