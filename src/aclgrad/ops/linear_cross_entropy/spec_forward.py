"""Contracts of the forward pass: aclnnFusedLinearOnlineMaxSum and aclnnFusedCrossEntropyLossWithMaxSum."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ...core.errors import InvalidArgument
from ...core.meta import dtype_name
from ...core.registry import register
from ...core.rules import dtype_of, rank, required, same_dtype, same_shape, shape, shape_of, strictly, supported_dtypes
from ...core.spec import BF16, F16, F32, F64, I32, I64, U8, Call, Float, Int, OpSpec, Out, Rule, Tensor
from .spec import GENEROUS, HALVES, no_label_smoothing, product_flops, reference_options

MAX_FEATURES = 65534
LOCAL_STATISTICS = ("logits_max", "sum_exp_logits", "predicted_logits")
OUTPUTS = (*LOCAL_STATISTICS, "target_mask", "masked_target")


class ShardDims(NamedTuple):
    """BT tokens, H features, V rows of the local vocabulary, B bytes of the mask."""

    BT: int
    H: int
    V: int
    B: int


def _dims(call: Call) -> ShardDims:
    tokens, features = call["input"].shape
    return ShardDims(tokens, features, call["weight"].shape[0], -(-tokens // 8))


def wide_of(name: str) -> Callable[[Call], torch.dtype]:
    """What sums of this tensor's elements are kept in: float32, or float64 for float64."""
    return lambda call: F64 if call[name].dtype == F64 else F32


def statistics_are_wide(call: Call) -> None:
    """The statistics have the type of the sums."""
    wide = wide_of("input")(call)
    for label, meta in call.metas(*LOCAL_STATISTICS):
        if meta.dtype != wide:
            expected = f"{dtype_name(wide)} beside {dtype_name(call['input'].dtype)} {call.label('input')}"
            raise InvalidArgument(f"{label} is {dtype_name(meta.dtype)}, expected {expected}", label)


def some_vocabulary(call: Call) -> None:
    """There is no largest of no logits."""
    if call["weight"].shape[0] == 0:
        label = call.label("weight")
        raise InvalidArgument(f"{label} has 0 rows, expected at least 1", label)


def few_enough_features(call: Call) -> None:
    """The document's limit of H."""
    if call.dims.H > MAX_FEATURES:
        label = call.label("input")
        raise InvalidArgument(f"{label} has {call.dims.H} columns, expected at most {MAX_FEATURES}", label)


def range_of_vocabulary(call: Call) -> None:
    """The shard's rows are [start, end) of the vocabulary. The document does not compare them with V."""
    start, end = call["vocab_start_index"], call["vocab_end_index"]
    if start < 0:
        label = call.label("vocab_start_index")
        raise InvalidArgument(f"{label} is {start}, expected at least 0", label)
    if end < start:
        label = call.label("vocab_end_index")
        raise InvalidArgument(f"{label} is {end}, expected at least {call.label('vocab_start_index')} = {start}", label)


def end_seems_inclusive(call: Call) -> str | None:
    """The document's words suggest end = start + V − 1; kernel and tests of the device leave the end out."""
    start, end, rows = call["vocab_start_index"], call["vocab_end_index"], call["weight"].shape[0]
    if end != start + rows - 1:
        return None
    return (
        f"{call.label('vocab_end_index')} is {end} for {rows} rows of {call.label('weight')} from {start} on: the end "
        f"does not belong to the range, so targets of the last row count as another shard's; {end + 1} is all rows"
    )


def _statistic(name: str, aclnn: str) -> Out:
    return Out(name, aclnn, (F32,), lambda call: (call.dims.BT,), wide_of("input"), generous=(F64,), rounded_as="input")


linear_online_max_sum = register(
    OpSpec(
        name="linear_online_max_sum",
        aclnn="aclnnFusedLinearOnlineMaxSum",
        summary="statistics of a linear layer's softmax on one shard of the vocabulary",
        package=__package__,
        args=(
            Tensor("input", "input", HALVES, generous=GENEROUS),
            Tensor("weight", "weight", HALVES, generous=GENEROUS),
            Tensor("target", "target", (I32, I64)),
            Int("vocab_start_index", "vocabStartIndex"),
            Int("vocab_end_index", "vocabEndIndex"),
        ),
        outs=(
            _statistic("logits_max", "logitsMaxLocalOut"),
            _statistic("sum_exp_logits", "sumExpLogitsLocalOut"),
            _statistic("predicted_logits", "predictedLogitsLocalOut"),
            Out("target_mask", "targetMaskOut", (U8,), lambda call: (call.dims.B,), lambda _: U8),
            Out("masked_target", "maskedTargetOut", (I32, I64), lambda call: (call.dims.BT,), dtype_of("target")),
            Out(
                "vocab_parallel_logits", "vocabParallelLogitsOutOptional", HALVES,
                lambda call: (call.dims.BT, call.dims.V), dtype_of("input"),
                generous=GENEROUS, asked_by="return_logits",
            ),
        ),
        dims=_dims,
        flops=product_flops,
        remark=end_seems_inclusive,
        rules=(
            required("input", "weight", "target", *OUTPUTS),
            supported_dtypes("input", "weight", "target"),
            same_dtype(("weight",), base="input"),
            supported_dtypes(*LOCAL_STATISTICS),
            statistics_are_wide,
            supported_dtypes("target_mask"),
            same_dtype(("masked_target",), base="target"),
            same_dtype(("vocab_parallel_logits",), base="input"),
            rank(2, 2, "input", "weight", "vocab_parallel_logits"),
            rank(1, 1, "target", *OUTPUTS),
            some_vocabulary,
            strictly(few_enough_features),
            shape("weight", "V", "H"),
            *(shape(name, "BT") for name in ("target", *LOCAL_STATISTICS)),
            shape("target_mask", "B"),
            shape("masked_target", "BT"),
            shape("vocab_parallel_logits", "BT", "V"),
            range_of_vocabulary,
        ),
        reference_options=reference_options,
    )
)  # fmt: skip


class LossDims(NamedTuple):
    """BT tokens."""

    BT: int


def double_goes_with_double_statistics(call: Call) -> None:
    """float64 logits only beside float64 statistics."""
    logits = call["vocab_parallel_logits"]
    if logits is not None and logits.dtype == F64 and call["logits_max"].dtype != F64:
        label, base = call.label("vocab_parallel_logits"), call.label("logits_max")
        found = dtype_name(call["logits_max"].dtype)
        raise InvalidArgument(f"{label} is float64, expected float32 or a half type beside {found} {base}", label)


def a_row_of_logits_per_token(call: Call) -> None:
    """The document does not ask for it; without it there is memory to be read that is nobody's."""
    logits = call["vocab_parallel_logits"]
    if logits is not None and logits.shape[0] != call.dims.BT:
        label = call.label("vocab_parallel_logits")
        raise InvalidArgument(f"{label} has {logits.shape[0]} rows, expected BT = {call.dims.BT}", label)


def given_logits(*rules: Rule) -> Rule:
    """Rules about the softmax, which is looked at only where it is produced."""

    def check(call: Call) -> None:
        if call["vocab_parallel_logits"] is not None:
            for rule in rules:
                rule(call)

    return check


cross_entropy_with_max_sum = register(
    OpSpec(
        name="cross_entropy_with_max_sum",
        aclnn="aclnnFusedCrossEntropyLossWithMaxSum",
        summary="cross entropy, and the softmax, from statistics of the whole vocabulary",
        package=__package__,
        args=(
            Tensor("logits_max", "logitsMax", (F32,), generous=(F64,)),
            Tensor("sum_exp_logits", "sumExpLogits", (F32,), generous=(F64,)),
            Tensor("predicted_logits", "predictedLogits", (F32,), generous=(F64,)),
            Float("label_smoothing", "labelSmoothing", c_type="float", default=0.0),
            Tensor("input", "inputOptional", HALVES, generous=GENEROUS, default=None),
            Tensor("weight", "weightOptional", HALVES, generous=GENEROUS, default=None),
            Tensor(
                "vocab_parallel_logits", "vocabParallelLogitsOptional", (F32, F16, BF16), generous=(F64,), default=None
            ),
        ),
        outs=(
            Out("loss", "lossOut", (F32,), shape_of("logits_max"), dtype_of("logits_max"), generous=(F64,)),
            Out(
                "softmax", "softMaxOutOptional", (F32,), shape_of("vocab_parallel_logits"), dtype_of("logits_max"),
                wanted=lambda call: call["vocab_parallel_logits"] is not None, generous=(F64,),
            ),
        ),
        dims=lambda call: LossDims(call["logits_max"].shape[0]),
        unread=lambda call: (call.label("input"), call.label("weight")),  # the document has no use for them yet
        rules=(
            required(*LOCAL_STATISTICS, "loss"),
            given_logits(required("softmax")),
            supported_dtypes(*LOCAL_STATISTICS, "vocab_parallel_logits", "loss"),
            same_dtype((*LOCAL_STATISTICS, "loss")),
            given_logits(supported_dtypes("softmax"), same_dtype(("softmax",), base="logits_max")),
            double_goes_with_double_statistics,
            rank(1, 1, "logits_max"),
            same_shape("logits_max", "sum_exp_logits", "predicted_logits", "loss"),
            rank(2, 2, "vocab_parallel_logits"),
            a_row_of_logits_per_token,
            given_logits(same_shape("vocab_parallel_logits", "softmax")),
            no_label_smoothing,
        ),
    )
)  # fmt: skip
