"""Contracts of batch norm in one process, which no document knows: the whole layer in a call, and its gradient."""

from __future__ import annotations

from collections.abc import Callable

from ...core.registry import register
from ...core.rules import MAX_RANK, dtype_of, rank, required, same_dtype, same_shape, shape_of, supported_dtypes
from ...core.spec import F32, F64, Call, Flag, Float, InOut, OpSpec, Out, Tensor
from .spec import (
    FLOATS,
    _channels,
    _vector,
    _wide,
    both_or_no_running_statistics,
    channels_exist,
    vectors,
)

ALL = (*FLOATS, F64)
AFFINE, RUNNING, STATISTICS = ("weight", "bias"), ("running_mean", "running_var"), ("mean", "invstd")
WANTED = ("wants_input", "wants_weight", "wants_bias")


def _vector_out(name: str, wanted: Callable[[Call], bool] = lambda _: True) -> Out:
    return Out(name, name, (F32, F64), _vector, _wide, wanted=wanted)


def _asked(name: str) -> Callable[[Call], bool]:
    return lambda call: bool(call[name])


batch_norm = register(
    OpSpec(
        name="batch_norm",
        aclnn="",
        summary="batch norm of one process in training: statistics, running statistics, normalisation",
        package=__package__,
        args=(
            Tensor("input", "input", ALL),
            *(Tensor(name, name, ALL, optional=True) for name in AFFINE),
            *(InOut(name, name, ALL, const=False, optional=True) for name in RUNNING),
            Float("momentum", "momentum"),
            Float("eps", "eps"),
        ),
        outs=(
            Out("output", "output", ALL, shape_of("input"), dtype_of("input"), like="input"),
            *(_vector_out(name) for name in STATISTICS),
        ),
        dims=_channels,
        rules=(
            required("input"),
            both_or_no_running_statistics,
            supported_dtypes("input", *AFFINE, *RUNNING, "output", *STATISTICS),
            rank(2, MAX_RANK, "input"),
            channels_exist,
            same_shape("input", "output"),
            vectors(*AFFINE, *RUNNING, *STATISTICS),
        ),
    )
)

batch_norm_backward = register(
    OpSpec(
        name="batch_norm_backward",
        aclnn="",
        summary="gradient of batch norm of one process",
        package=__package__,
        args=(
            Tensor("grad_out", "grad_out", ALL),
            Tensor("input", "input", ALL),
            Tensor("weight", "weight", ALL, optional=True),
            *(Tensor(name, name, ALL) for name in STATISTICS),
            *(Flag(name, name) for name in WANTED),
        ),
        outs=(
            Out(
                "grad_input", "grad_input", ALL, shape_of("input"), dtype_of("input"),
                like="input", wanted=_asked("wants_input"),
            ),
            _vector_out("grad_weight", _asked("wants_weight")),
            _vector_out("grad_bias", _asked("wants_bias")),
        ),
        dims=_channels,
        rules=(
            required("grad_out", "input", *STATISTICS),
            supported_dtypes("grad_out", "input", "weight", *STATISTICS, "grad_input", "grad_weight", "grad_bias"),
            same_dtype(("grad_out",), base="input"),
            rank(2, MAX_RANK, "grad_out", "input"),
            channels_exist,
            same_shape("input", "grad_out", "grad_input"),
            vectors("weight", *STATISTICS, "grad_weight", "grad_bias"),
        ),
    )
)  # fmt: skip
