"""Named inputs of batch norm in one process: the layer, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import F16, F32
from ...testing.cases import EDGE, Case, Data, Invalid, Suite
from .cases_batches import BATCHES, DTYPES, FAST, Batch, batch, case, wide

EPS, MOMENTUM = 1e-5, 0.3
SHAPES = [each for each in BATCHES if each.name not in ("rank9", "one_channel")]


def _forward(affine: bool = True, running: torch.dtype | None = F32) -> Callable[[Batch, Data], Sequence[Any]]:
    """With weight and bias and running statistics, or without."""

    def make(here: Batch, data: Data) -> Sequence[Any]:
        dtype, c = wide(data), here.channels
        weight, bias = (data.normal(c, dtype=dtype) if affine else None for _ in range(2))
        moved = torch.promote_types(dtype, F32) if running == F32 else running
        mean, var = (data.normal(c, dtype=moved), data.uniform(0.3, 2, c, dtype=moved)) if moved else (None, None)
        return here.x(data), weight, bias, mean, var, MOMENTUM, EPS

    return make


def _far_from_zero(data: Data) -> Sequence[Any]:
    """Means hundreds of standard deviations away, where folding them into a bias would leave noise."""
    shift = torch.tensor([300.0, -500.0, 0.0, 1.0], dtype=data.dtype)[:, None]
    return data.normal(6, 4, 50) + shift, None, None, None, None, MOMENTUM, EPS


def _not_finite(data: Data) -> Sequence[Any]:
    x = data.normal(3, 5, 7)
    x[0, 0, 0] = x[1, 2, 3] = torch.inf
    x[2, 2, 0] = -torch.inf
    x[1, 3, 1] = torch.nan
    return x, None, None, None, None, MOMENTUM, EPS


FORWARD = (
    *(case(each, _forward()) for each in SHAPES),
    case(batch("not_affine", 2, 3, 9), _forward(affine=False)),
    case(batch("nothing_moved", 2, 3, 9), _forward(running=None)),
    case(Batch("half_buffers", (3, 5, 4), dtypes=(F16,)), _forward(running=F16)),
    Case("far_from_zero", _far_from_zero, FAST, frozenset({EDGE})),
    Case("not_finite", _not_finite, DTYPES, frozenset({EDGE})),
)


def _backward(
    wants: tuple[bool, bool, bool] = (True, True, True), weight: bool = True
) -> Callable[[Batch, Data], Sequence[Any]]:
    """Statistics of the sizes a real batch has."""

    def make(here: Batch, data: Data) -> Sequence[Any]:
        dtype, c = wide(data), here.channels
        given = data.normal(c, dtype=dtype) if weight else None
        return (
            here.grad(data),
            here.x(data),
            given,
            data.normal(c, dtype=dtype),
            data.uniform(0.3, 2, c, dtype=dtype),
            *wants,
        )

    return make


def _of_a_sum(data: Data) -> Sequence[Any]:
    """The gradient that `y.sum().backward()` sends: one number everywhere."""
    x, mean, invstd = data.normal(3, 5, 4, 2), data.normal(5, dtype=wide(data)), data.uniform(1, 2, 5, dtype=wide(data))
    return torch.ones((), dtype=data.dtype).expand(x.shape), x, None, mean, invstd, True, True, True


BACKWARD = (
    *(case(each, _backward()) for each in SHAPES),
    case(batch("input_alone", 2, 3, 9), _backward((True, False, False), weight=False)),
    case(batch("weight_alone", 2, 3, 9), _backward((False, True, False))),
    case(batch("bias_alone", 2, 3, 9), _backward((False, False, True))),
    case(batch("nothing", 2, 3, 9), _backward((False, False, False))),
    Case("of_a_sum", _of_a_sum, DTYPES, frozenset({EDGE})),
)

RUNNING, STATISTICS = ("running_mean", "running_var"), ("mean", "invstd")

INVALID_FORWARD = (
    Invalid("input_null", {"input": None}, NullArgument, "input"),
    Invalid("running_var_null", {"running_var": None}, NullArgument, "running_var"),
    *(
        Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
        for name in ("input", "weight", "bias", *RUNNING)
    ),
    Invalid("rank1", {"input": lambda t: t[0, :, 0, 0]}, InvalidArgument, "input"),
    Invalid("no_channels", {"input": lambda t: t[:, :0]}, InvalidArgument, "input"),
    *(
        Invalid(f"{name}_{kind}", {name: change}, InvalidArgument, name)
        for name in ("weight", "bias", *RUNNING)
        for kind, change in (("rank", lambda t: t[None]), ("length", lambda t: t[:-1]))
    ),
    Invalid(
        "running_mean_expanded", {"running_mean": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "running_mean"
    ),
)

INVALID_BACKWARD = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("grad_out", "input", *STATISTICS)),
    *(
        Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
        for name in ("grad_out", "input", "weight", *STATISTICS)
    ),
    Invalid("grad_out_of_another_dtype", {"grad_out": lambda t: t.half()}, InvalidArgument, "grad_out"),
    Invalid("rank1", {name: lambda t: t[0, :, 0, 0] for name in ("grad_out", "input")}, InvalidArgument, "grad_out"),
    Invalid("no_channels", {name: lambda t: t[:, :0] for name in ("grad_out", "input")}, InvalidArgument, "input"),
    Invalid("grad_out_shape", {"grad_out": lambda t: t[:-1]}, InvalidArgument, "grad_out"),
    *(
        Invalid(f"{name}_{kind}", {name: change}, InvalidArgument, name)
        for name in ("weight", *STATISTICS)
        for kind, change in (("rank", lambda t: t[None]), ("length", lambda t: t[:-1]))
    ),
)

SUITES = {
    "batch_norm": Suite(FORWARD, INVALID_FORWARD),
    "batch_norm_backward": Suite(BACKWARD, INVALID_BACKWARD),
}
