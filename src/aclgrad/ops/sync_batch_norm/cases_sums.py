"""Named inputs of the operators that sum over a batch: its statistics, and the sums of the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.rules import ND
from ...core.spec import F16
from ...testing.cases import EDGE, FRACTAL_NZ, NCDHW, NCHW, Case, Data, Invalid, Suite
from .cases_batches import DTYPES, FAST, Batch, batch, case, cases, wide

EPS = 1e-5


def _stats(here: Batch, data: Data) -> Sequence[Any]:
    return here.x(data), EPS


def _far_from_zero(data: Data) -> Sequence[Any]:
    """Means hundreds of standard deviations away, where the difference of two large sums would be noise.

    In float64 torch's own variance, the truth of all cases, is further from the truth than the kernel's.
    """
    return data.normal(6, 4, 50) + torch.tensor([300.0, -500.0, 0.0, 1.0], dtype=data.dtype)[:, None], EPS


def _outliers(data: Data) -> Sequence[Any]:
    """One element of each channel outweighs all others: the first, the last, one in the middle."""
    x = data.normal(8, 3, 40, scale=0.01)
    x[0, 0, 0] = x[-1, 1, -1] = x[4, 2, 17] = 1000
    return x, EPS


def _not_finite(data: Data) -> Sequence[Any]:
    """Many channels are finite: in a single one a naive sum may be right by luck."""
    x = data.normal(3, 36, 7)
    x[0, 0, 0] = x[2, 1, 6] = x[1, 2, 3] = torch.inf
    x[2, 2, 0] = -torch.inf
    x[1, 3, 1] = torch.nan
    return x, EPS


STATS = (
    *cases(_stats),
    case(batch("NCL", 2, 3, 9), _stats),
    case(batch("one_element", 1, 4), _stats),
    case(batch("no_plane", 2, 3, 0), _stats),
    Case("far_from_zero", _far_from_zero, FAST, frozenset({EDGE})),
    Case("outliers", _outliers, DTYPES, frozenset({EDGE})),
    Case("not_finite", _not_finite, DTYPES, frozenset({EDGE})),
    Case("constant", lambda data: (torch.full((4, 3, 5), 7.0, dtype=data.dtype), EPS), DTYPES, frozenset({EDGE})),
)


def _reduce(
    input_g: bool = True, weight_g: bool = True, bias_g: bool = True, vectors: torch.dtype | None = None
) -> Callable[[Batch, Data], Sequence[Any]]:
    """Gradients and statistics of the sizes a real batch has."""

    def make(here: Batch, data: Data) -> Sequence[Any]:
        dtype, c = vectors or wide(data), here.channels
        mean, invstd = data.normal(c, dtype=dtype), data.uniform(0.3, 2, c, dtype=dtype)
        return here.grad(data), here.x(data), mean, invstd, data.normal(c, dtype=dtype), input_g, weight_g, bias_g

    return make


def _of_a_sum(data: Data) -> Sequence[Any]:
    """The gradient that `y.sum().backward()` sends: one number everywhere; and no weight."""
    x, mean, invstd = data.normal(3, 5, 4, 2), data.normal(5, dtype=wide(data)), data.uniform(1, 2, 5, dtype=wide(data))
    return torch.ones((), dtype=data.dtype).expand(x.shape), x, mean, invstd, None, True, True, True


def _crossed(data: Data) -> Sequence[Any]:
    """A gradient and an input of different layouts."""
    grad, x = data.normal(3, 4, 5, 6).transpose(1, 3), data.normal(3, 6, 5, 4)
    return grad, x, data.normal(6, dtype=wide(data)), data.uniform(1, 2, 6, dtype=wide(data)), None, True, True, True


REDUCE = (
    *cases(_reduce()),
    case(batch("no_plane", 2, 3, 0), _reduce()),
    case(batch("input_alone", 2, 3, 9), _reduce(weight_g=False, bias_g=False)),
    case(batch("weight_alone", 2, 3, 9), _reduce(input_g=False, bias_g=False)),
    case(batch("bias_alone", 2, 3, 9), _reduce(input_g=False, weight_g=False)),
    case(batch("nothing", 2, 3, 9), _reduce(False, False, False)),
    case(Batch("half_vectors", (3, 5, 4), dtypes=(F16,)), _reduce(vectors=F16)),
    Case("of_a_sum", _of_a_sum, DTYPES, frozenset({EDGE})),
    Case("crossed", _crossed, DTYPES, frozenset({EDGE})),
)

INVALID_STATS = (
    Invalid("input_null", {"input": None}, NullArgument, "input"),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in ("mean", "invstd")),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    Invalid("input_double", {"input": lambda t: t.double()}, InvalidArgument, "input", ("aclnn",)),
    Invalid("input_bfloat16", {"input": lambda t: t.bfloat16()}, InvalidArgument, "input", ("aclnn",)),
    *(
        Invalid(f"{name}_{kind}", {name: change}, InvalidArgument, name)
        for name in ("mean", "invstd")
        for kind, change in (("half", torch.Tensor.half), ("rank", lambda t: t[None]), ("length", lambda t: t[:-1]))
    ),
    Invalid("mean_expanded", {"mean": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "mean"),
    Invalid("rank1", {"input": lambda t: t[0, :, 0, 0]}, InvalidArgument, "input"),
    Invalid("rank9", {"input": lambda t: t.reshape(*t.shape, *[1] * 5)}, InvalidArgument, "input", ("aclnn",)),
    Invalid("no_channels", {"input": lambda t: t[:, :0]}, InvalidArgument, "input"),
)

BATCHES = ("grad_out", "input")
VECTORS = ("mean", "invstd")
RESULTS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")

INVALID_REDUCE = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in (*BATCHES, *VECTORS)),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in RESULTS),
    *(
        Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
        for name in (*BATCHES, *VECTORS, *RESULTS)
    ),
    Invalid("batches_double", dict.fromkeys(BATCHES, torch.Tensor.double), InvalidArgument, "grad_out", ("aclnn",)),
    *(
        Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name, ("aclnn",))
        for name in (*VECTORS, *RESULTS)
    ),
    Invalid("grad_out_of_another_dtype", {"grad_out": lambda t: t.half()}, InvalidArgument, "grad_out"),
    Invalid("rank1", {name: lambda t: t[0, :, 0, 0] for name in BATCHES}, InvalidArgument, "grad_out"),
    Invalid(
        "rank9",
        {n: lambda t: t.reshape(*t.shape, *[1] * 5) for n in BATCHES},
        InvalidArgument,
        "grad_out",
        ("aclnn",),
    ),
    Invalid("no_channels", {name: lambda t: t[:, :0] for name in BATCHES}, InvalidArgument, "input"),
    Invalid("grad_out_shape", {"grad_out": lambda t: t[:-1]}, InvalidArgument, "grad_out"),
    *(Invalid(f"{n}_length", {n: lambda t: t[:-1]}, InvalidArgument, n) for n in (*VECTORS, *RESULTS)),
    *(Invalid(f"{n}_rank", {n: lambda t: t[None]}, InvalidArgument, n) for n in (*VECTORS, *RESULTS)),
    Invalid("sum_dy_expanded", {"sum_dy": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "sum_dy"),
)

SUITES = {
    "batch_norm_stats": Suite(STATS, INVALID_STATS, formats=(NCHW, ND, NCDHW), refused_formats=(FRACTAL_NZ,)),
    "batch_norm_reduce_backward": Suite(REDUCE, INVALID_REDUCE, refused_formats=(FRACTAL_NZ,)),
}
