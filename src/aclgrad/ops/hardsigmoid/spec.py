"""Contracts of aclnnHardsigmoid, aclnnInplaceHardsigmoid and aclnnHardsigmoidBackward."""

from __future__ import annotations

from ...core.registry import register
from ...core.rules import (
    MAX_RANK,
    dtype_of,
    one_format,
    promoted,
    rank,
    required,
    same_dtype,
    same_shape,
    shape_of,
    supported_dtypes,
)
from ...core.soc import bf16_needs_a_chip_that_has_it
from ...core.spec import BF16, F16, F32, F64, I32, InOut, OpSpec, Out, Tensor

FLOATS = (BF16, F16, F32)
NUMBERS = (*FLOATS, I32)


hardsigmoid = register(
    OpSpec(
        name="hardsigmoid",
        aclnn="aclnnHardsigmoid",
        summary="a sigmoid made of three straight lines",
        package=__package__,
        args=(Tensor("x", "self", NUMBERS, generous=(F64,)),),
        outs=(Out("out", "out", NUMBERS, shape_of("x"), dtype_of("x"), like="x", generous=(F64,)),),
        rules=(
            required("x", "out"),
            supported_dtypes("x"),
            bf16_needs_a_chip_that_has_it("x"),
            rank(0, MAX_RANK, "x"),
            same_shape("x", "out"),
            same_dtype(("x", "out")),
            one_format("x", "out"),
        ),
        pointwise=True,
    )
)

hardsigmoid_ = register(
    OpSpec(
        name="hardsigmoid_",
        aclnn="aclnnInplaceHardsigmoid",
        summary="hardsigmoid, written over its argument",
        package=__package__,
        args=(InOut("x", "self", NUMBERS, generous=(F64,)),),
        outs=(),
        rules=(required("x"), supported_dtypes("x"), bf16_needs_a_chip_that_has_it("x"), rank(0, MAX_RANK, "x")),
        header="aclnn_hardsigmoid",
    )
)

hardsigmoid_backward = register(
    OpSpec(
        name="hardsigmoid_backward",
        aclnn="aclnnHardsigmoidBackward",
        summary="gradient of hardsigmoid",
        package=__package__,
        args=(
            Tensor("grad_output", "gradOutput", FLOATS, generous=(F64,)),
            Tensor("x", "self", FLOATS, generous=(F64,)),
        ),
        outs=(Out("out", "out", FLOATS, shape_of("x"), promoted("grad_output", "x"), like="x", generous=(F64,)),),
        rules=(
            required("grad_output", "x", "out"),
            supported_dtypes("grad_output", "x"),
            bf16_needs_a_chip_that_has_it("grad_output", "x"),
            supported_dtypes("out"),
            rank(0, MAX_RANK, "grad_output", "x", "out"),
            same_shape("grad_output", "x"),
            same_shape("x", "out"),
        ),
        pointwise=True,
    )
)
