"""Contracts of aclnnSquaredRelu and aclnnSquaredReluBackward."""

from aclgrad.custom import (
    F16,
    F32,
    F64,
    MAX_RANK,
    OpSpec,
    Out,
    Tensor,
    dtype_of,
    rank,
    register,
    required,
    same_dtype,
    same_shape,
    shape_of,
    supported_dtypes,
)  # fmt: skip

DTYPES = (F32, F16)  # of the aclnn functions; in Python float64 too, which golden results are computed in

squared_relu = register(
    OpSpec(
        name="squared_relu",
        aclnn="aclnnSquaredRelu",
        summary="square of the positive part",
        package=__package__,
        args=(Tensor("x", "self", DTYPES, generous=(F64,)),),
        outs=(Out("out", "out", DTYPES, shape_of("x"), dtype_of("x"), generous=(F64,)),),
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

squared_relu_backward = register(
    OpSpec(
        name="squared_relu_backward",
        aclnn="aclnnSquaredReluBackward",
        summary="gradient of the square of the positive part",
        package=__package__,
        args=(
            Tensor("grad_output", "gradOutput", DTYPES, generous=(F64,)),
            Tensor("x", "self", DTYPES, generous=(F64,)),
        ),
        outs=(Out("grad_input", "gradInput", DTYPES, shape_of("x"), dtype_of("x"), generous=(F64,)),),
        rules=(
            required("grad_output", "x", "grad_input"),
            supported_dtypes("grad_output", "x"),
            rank(0, MAX_RANK, "x"),
            same_shape("x", "grad_output", "grad_input"),
            same_dtype(("grad_output", "x", "grad_input")),
        ),
        pointwise=True,
    )
)
