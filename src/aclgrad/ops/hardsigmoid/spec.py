"""Contracts of aclnnHardsigmoid, aclnnInplaceHardsigmoid and aclnnHardsigmoidBackward."""

from __future__ import annotations

from ...core.errors import InvalidArgument
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
from ...core.soc import ATLAS_950, ATLAS_A2, ATLAS_A3, is_one_of
from ...core.spec import BF16, F16, F32, F64, I32, Call, InOut, OpSpec, Out, Tensor

FLOATS = (BF16, F16, F32)
NUMBERS = (*FLOATS, I32)


def bf16_needs_a_chip_that_has_it(call: Call) -> None:
    """Chips before Atlas A2 know no bfloat16."""
    if is_one_of(call.soc, ATLAS_A2, ATLAS_A3, ATLAS_950):
        return
    for label, meta in call.metas("grad_output", "x"):
        if meta.dtype == BF16:
            raise InvalidArgument(f"{label} is bfloat16, expected float32 or float16 on {call.soc}", label)


def one_format(call: Call) -> None:
    """Handles of both tensors were created with one format, whichever."""
    (base, x), *others = call.metas("x", "out")
    for label, meta in others:
        if x.format is not None and meta.format is not None and meta.format != x.format:
            raise InvalidArgument(f"{label} has format {int(meta.format)}, expected {int(x.format)} like {base}", label)


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
            bf16_needs_a_chip_that_has_it,
            rank(0, MAX_RANK, "x"),
            same_shape("x", "out"),
            same_dtype(("x", "out")),
            one_format,
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
        rules=(required("x"), supported_dtypes("x"), bf16_needs_a_chip_that_has_it, rank(0, MAX_RANK, "x")),
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
            bf16_needs_a_chip_that_has_it,
            supported_dtypes("out"),
            rank(0, MAX_RANK, "grad_output", "x", "out"),
            same_shape("grad_output", "x"),
            same_shape("x", "out"),
        ),
        pointwise=True,
    )
)
