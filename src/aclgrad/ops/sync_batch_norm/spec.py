"""Contract of aclnnBatchNormElemtBackward."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...core.errors import InvalidArgument
from ...core.registry import register
from ...core.rules import (
    MAX_RANK,
    dtype_of,
    no_private_format,
    rank,
    required,
    same_shape,
    shape,
    shape_of,
    supported_dtypes,
)
from ...core.spec import BF16, F16, F32, F64, I32, I64, U8, Call, OpSpec, Out, Tensor

FLOATS = (F32, F16, BF16)
COUNTS = (I32, F16, F32)
VECTORS = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")


class ChannelDims(NamedTuple):
    """C channels along dimension 1."""

    C: int


def channels_exist(call: Call) -> None:
    """A batch may be empty, its channels may not."""
    if call.dims.C == 0:
        label = call.label("input")
        raise InvalidArgument(f"{label} has shape {list(call['input'].shape)}, expected at least one channel", label)


batch_norm_elemt_backward = register(
    OpSpec(
        name="batch_norm_elemt_backward",
        aclnn="aclnnBatchNormElemtBackward",
        summary="element-wise part of the gradient of synchronised batch norm",
        package=__package__,
        args=(
            Tensor("grad_out", "gradOut", FLOATS, generous=(F64,)),
            Tensor("input", "input", FLOATS, generous=(F64,)),
            Tensor("mean", "mean", FLOATS, generous=(F64,)),
            Tensor("invstd", "invstd", FLOATS, generous=(F64,)),
            Tensor("weight", "weight", FLOATS, generous=(F64,)),
            Tensor("sum_dy", "sumDy", FLOATS, generous=(F64,)),
            Tensor("sum_dy_xmu", "sumDyXmu", FLOATS, generous=(F64,)),
            Tensor("counter", "counter", COUNTS, generous=(BF16, F64, I64, torch.int16, torch.int8, U8)),
        ),
        outs=(
            Out("grad_input", "gradInput", FLOATS, shape_of("input"), dtype_of("input"), like="input", generous=(F64,)),
        ),
        dims=lambda call: ChannelDims(call["input"].shape[1]),
        rules=(
            required("grad_out", "input", "mean", "invstd", "sum_dy", "sum_dy_xmu", "counter", "grad_input"),
            supported_dtypes("grad_out", "input", *VECTORS, "counter", "grad_input"),
            no_private_format("grad_out", "input", "grad_input"),
            rank(2, MAX_RANK, "input"),
            rank(0, MAX_RANK, "grad_out", "grad_input", "counter"),
            channels_exist,
            same_shape("input", "grad_out", "grad_input"),
            *(shape(name, "C") for name in VECTORS),
        ),
        pointwise=True,
    )
)
