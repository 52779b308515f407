"""Contracts of synchronised batch norm: statistics, their union over processes, normalisation, sums, gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.profile import NOTHING, invalid_where_coded
from ...core.registry import register
from ...core.rules import (
    MAX_RANK,
    dtype_of,
    no_private_format,
    one_format,
    promoted,
    rank,
    required,
    same_dtype,
    same_shape,
    shape,
    shape_of,
    supported_dtypes,
)
from ...core.soc import ATLAS_950, bf16_needs_a_chip_that_has_it, is_one_of
from ...core.spec import (
    BF16,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    Call,
    Difference,
    Flag,
    Float,
    InOut,
    OpSpec,
    Out,
    Rule,
    Tensor,
)

FLOATS = (F32, F16, BF16)
COUNTS = (I32, F16, F32)
INTEGERS = (I64, torch.int16, torch.int8, U8)
VECTORS = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")
AFFINE = ("weight", "bias", "mean", "invstd")
SUMS = (
    ("sum_dy", "sumDy", "input_g"),
    ("sum_dy_xmu", "sumDyXmu", "input_g"),
    ("grad_weight", "gradWeight", "weight_g"),
    ("grad_bias", "gradBias", "bias_g"),
)
"""The results of the backward pass's reduction in both doors, each with the flag that asks for it."""


class ChannelDims(NamedTuple):
    """C channels along dimension 1."""

    C: int


class ProcessDims(NamedTuple):
    """W processes, C channels."""

    W: int
    C: int


def _channels(call: Call) -> ChannelDims:
    return ChannelDims(call["input"].shape[1])


def _vector(call: Call) -> tuple[int]:
    return (call.dims.C,)


def channels_exist(call: Call) -> None:
    """A batch may be empty, its channels may not."""
    if call.dims.C == 0:
        label = call.label("input")
        raise InvalidArgument(f"{label} has shape {list(call['input'].shape)}, expected at least one channel", label)


def vectors(*names: str) -> Rule:
    """Each of these tensors is [C]."""

    def check(call: Call) -> None:
        for name in names:
            shape(name, "C")(call)

    return check


def _wide(call: Call) -> torch.dtype:
    return F64 if call.tensor("input").dtype == F64 else F32


def input_dtype(call: Call) -> None:
    """The aclnn door takes bfloat16 where it imitates an Ascend950, and nowhere else."""
    on_950 = call.strict and is_one_of(call.soc, ATLAS_950)
    if not (on_950 and call.tensor("input").dtype == BF16):
        supported_dtypes("input")(call)


batch_norm_stats = register(
    OpSpec(
        name="batch_norm_stats",
        aclnn="aclnnBatchNormStats",
        summary="mean and inverse standard deviation of every channel",
        package=__package__,
        args=(Tensor("input", "input", (F32, F16), generous=(BF16, F64)), Float("eps", "eps")),
        outs=(
            Out("mean", "mean", (F32,), _vector, _wide, generous=(F64,)),
            Out("invstd", "invstd", (F32,), _vector, _wide, generous=(F64,)),
        ),
        dims=_channels,
        rules=(
            required("input", "mean", "invstd"),
            input_dtype,
            supported_dtypes("mean", "invstd"),
            no_private_format("input", "mean", "invstd"),
            rank(2, MAX_RANK, "input"),
            rank(1, 1, "mean", "invstd"),
            channels_exist,
            vectors("mean", "invstd"),
        ),
    )
)


def both_or_no_running_statistics(call: Call) -> None:
    """The mean is not updated without the variance."""
    if call["running_mean"] is not None and call["running_var"] is None:
        label, given = call.label("running_var"), call.label("running_mean")
        raise NullArgument(f"{label} is null, a tensor is required beside {given}", label)


batch_norm_gather_stats_with_counts = register(
    OpSpec(
        name="batch_norm_gather_stats_with_counts",
        aclnn="aclnnBatchNormGatherStatsWithCounts",
        summary="statistics of the whole batch from those of all processes; updates the running ones",
        package=__package__,
        args=(
            Tensor("input", "input", FLOATS, generous=(F64,)),
            Tensor("mean", "mean", FLOATS, generous=(F64,)),
            Tensor("invstd", "invstd", FLOATS, generous=(F64,)),
            InOut("running_mean", "runningMean", FLOATS, generous=(F64,), const=False, optional=True),
            InOut("running_var", "runningVar", FLOATS, generous=(F64,), const=False, optional=True),
            Float("momentum", "momentum"),
            Float("eps", "eps"),
            Tensor("counts", "counts", FLOATS, generous=(F64, I32, *INTEGERS)),
        ),
        outs=(
            Out("mean_all", "meanAll", FLOATS, _vector, promoted("mean", "input"), generous=(F64,)),
            Out("invstd_all", "invstdAll", FLOATS, _vector, promoted("mean", "input"), generous=(F64,)),
        ),
        dims=lambda call: ProcessDims(call["mean"].shape[0], call["input"].shape[1]),
        unread=lambda call: (call.label("input"),),  # it says how many channels there are
        rules=(
            required("input", "mean", "invstd", "counts", "mean_all", "invstd_all"),
            both_or_no_running_statistics,
            supported_dtypes(
                "input", "mean", "invstd", "running_mean", "running_var", "counts", "mean_all", "invstd_all"
            ),
            bf16_needs_a_chip_that_has_it(),
            no_private_format("input", "mean", "invstd", "counts"),
            rank(2, MAX_RANK, "input"),
            rank(2, 2, "mean", "invstd"),
            rank(1, 1, "counts"),
            shape("mean", "W", "C"),
            shape("invstd", "W", "C"),
            shape("counts", "W"),
            vectors("running_mean", "running_var", "mean_all", "invstd_all"),
        ),
    )
)

batch_norm_elemt = register(
    OpSpec(
        name="batch_norm_elemt",
        aclnn="aclnnBatchNormElemt",
        summary="batch norm with given statistics",
        package=__package__,
        args=(
            Tensor("input", "input", FLOATS, generous=(F64,)),
            Tensor("weight", "weight", FLOATS, generous=(F64,), optional=True),
            Tensor("bias", "bias", FLOATS, generous=(F64,), optional=True),
            Tensor("mean", "mean", FLOATS, generous=(F64,), const=False),
            Tensor("invstd", "invstd", FLOATS, generous=(F64,), const=False),
            Float("eps", "eps"),
        ),
        outs=(Out("output", "output", FLOATS, shape_of("input"), dtype_of("input"), like="input", generous=(F64,)),),
        dims=_channels,
        differences=(Difference("input, mean, invstd or output null", "161001", "161002"),),
        rules=(
            invalid_where_coded(required("input", "mean", "invstd", "output")),
            supported_dtypes("input", *AFFINE, "output"),
            bf16_needs_a_chip_that_has_it(),
            one_format("input", "output"),
            no_private_format("input", "output"),
            rank(2, MAX_RANK, "input", "output"),
            same_shape("input", "output"),
            channels_exist,
            vectors(*AFFINE),
        ),
        pointwise=True,
    )
)


def _asked_by(flag: str) -> Callable[[Call], bool]:
    return lambda call: bool(call[flag])


def wanted_sums(rule: Callable[..., Rule]) -> Rule:
    """The rule for those sums whose flags ask for them; the others may be null, or whatever they are."""
    return lambda call: rule(*(name for name, _, flag in SUMS if call[flag]))(call)


batch_norm_reduce_backward = register(
    OpSpec(
        name="batch_norm_reduce_backward",
        aclnn="aclnnBatchNormReduceBackward",
        header="aclnn_batch_norm_backward_reduce",
        summary="sums over the batch that the gradient of synchronised batch norm needs",
        package=__package__,
        args=(
            Tensor("grad_out", "gradOut", FLOATS, generous=(F64,)),
            Tensor("input", "input", FLOATS, generous=(F64,)),
            Tensor("mean", "mean", FLOATS, generous=(F64,)),
            Tensor("invstd", "invstd", FLOATS, generous=(F64,)),
            Tensor("weight", "weight", FLOATS, generous=(F64,), optional=True),
            Flag("input_g", "inputG"),
            Flag("weight_g", "weightG"),
            Flag("bias_g", "biasG"),
        ),
        outs=tuple(
            Out(name, aclnn, FLOATS, _vector, promoted("input", "mean"), wanted=_asked_by(flag), generous=(F64,))
            for name, aclnn, flag in SUMS
        ),
        dims=_channels,
        differences=(Difference("an empty gradOut or input", "success; sums of nothing are zero", NOTHING),),
        skipped=lambda call: 0 in (call["grad_out"].numel, call["input"].numel) and not is_one_of(call.soc, ATLAS_950),
        rules=(
            required("grad_out", "input", "mean", "invstd"),
            wanted_sums(required),
            supported_dtypes("grad_out", "input", "mean", "invstd"),
            same_dtype(("grad_out",), base="input"),
            wanted_sums(supported_dtypes),
            one_format("input", "grad_out"),
            no_private_format("grad_out", "input"),
            rank(2, MAX_RANK, "grad_out", "input"),
            channels_exist,
            wanted_sums(vectors),
            same_shape("input", "grad_out"),
            vectors("mean", "invstd"),
        ),
    )
)

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
            Tensor("weight", "weight", FLOATS, generous=(F64,), optional=True),
            Tensor("sum_dy", "sumDy", FLOATS, generous=(F64,)),
            Tensor("sum_dy_xmu", "sumDyXmu", FLOATS, generous=(F64,)),
            Tensor("counter", "counter", COUNTS, generous=(BF16, F64, *INTEGERS), const=False),
        ),
        outs=(
            Out("grad_input", "gradInput", FLOATS, shape_of("input"), dtype_of("input"), like="input", generous=(F64,)),
        ),
        dims=_channels,
        rules=(
            required("grad_out", "input", "mean", "invstd", "sum_dy", "sum_dy_xmu", "counter", "grad_input"),
            supported_dtypes("grad_out", "input", *VECTORS, "counter", "grad_input"),
            no_private_format("grad_out", "input", "grad_input"),
            rank(2, MAX_RANK, "input"),
            rank(0, MAX_RANK, "grad_out", "grad_input", "counter"),
            channels_exist,
            same_shape("input", "grad_out", "grad_input"),
            vectors(*VECTORS),
        ),
        pointwise=True,
    )
)
