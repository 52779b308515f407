"""Contract of aclnnHardsigmoidBackward."""

from __future__ import annotations

from ...core.errors import InvalidArgument
from ...core.registry import register
from ...core.rules import MAX_RANK, promoted, rank, required, same_shape, shape_of, supported_dtypes
from ...core.soc import ATLAS_950, ATLAS_A2, ATLAS_A3, is_one_of
from ...core.spec import BF16, F16, F32, F64, Call, OpSpec, Out, Tensor

FLOATS = (BF16, F16, F32)


def bf16_needs_a_chip_that_has_it(call: Call) -> None:
    """Chips before Atlas A2 know no bfloat16."""
    if is_one_of(call.soc, ATLAS_A2, ATLAS_A3, ATLAS_950):
        return
    for label, meta in call.metas("grad_output", "x"):
        if meta.dtype == BF16:
            raise InvalidArgument(f"{label} is bfloat16, expected float32 or float16 on {call.soc}", label)


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
