"""Contracts of aclnnSoftsign and aclnnSoftsignBackward."""

from __future__ import annotations

from ...core.registry import register
from ...core.rules import (
    MAX_RANK,
    dtype_of,
    promoted,
    rank,
    required,
    same_dtype,
    same_shape,
    shape_of,
    supported_dtypes,
)
from ...core.spec import BF16, F16, F32, F64, OpSpec, Out, Tensor

FLOATS = (BF16, F16, F32)

softsign = register(
    OpSpec(
        name="softsign",
        aclnn="aclnnSoftsign",
        summary="x over 1 + |x|",
        package=__package__,
        args=(Tensor("x", "self", FLOATS, generous=(F64,)),),
        outs=(Out("out", "out", FLOATS, shape_of("x"), dtype_of("x"), like="x", generous=(F64,)),),
        rules=(
            required("x", "out"),
            supported_dtypes("x"),
            rank(0, MAX_RANK, "x"),
            same_shape("x", "out"),
            same_dtype(("x", "out")),
        ),
        pointwise=True,
    )
)

softsign_backward = register(
    OpSpec(
        name="softsign_backward",
        aclnn="aclnnSoftsignBackward",
        summary="gradient of softsign",
        package=__package__,
        args=(
            Tensor("grad_output", "gradOutput", FLOATS, generous=(F64,)),
            Tensor("x", "self", FLOATS, generous=(F64,)),
        ),
        outs=(Out("out", "out", FLOATS, shape_of("x"), promoted("grad_output", "x"), like="x", generous=(F64,)),),
        rules=(
            required("grad_output", "x", "out"),
            supported_dtypes("grad_output", "x", "out"),
            rank(0, MAX_RANK, "grad_output", "x", "out"),
            same_shape("grad_output", "x"),
            same_shape("x", "out"),
        ),
        pointwise=True,
    )
)
