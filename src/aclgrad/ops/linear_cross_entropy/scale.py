"""Gradients that were computed with the loss, multiplied by what arrives from above: nothing to do where that is 1."""

from __future__ import annotations

from ...core.registry import register
from ...core.rules import rank, required, supported_dtypes
from ...core.spec import BF16, F16, F32, F64, InOut, OpSpec, Tensor

FLOATS = (BF16, F16, F32, F64)

scale_ = register(
    OpSpec(
        name="scale_",
        aclnn="",  # no document knows it
        summary="a tensor times a number that the device knows, in place",
        package=__package__,
        args=(InOut("x", "x", FLOATS), Tensor("factor", "factor", FLOATS)),
        outs=(),
        rules=(required("x", "factor"), supported_dtypes("x", "factor"), rank(2, 2, "x"), rank(0, 0, "factor")),
    )
)
