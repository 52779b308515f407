"""Contract of aclnnFusedLinearCrossEntropyLossGrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.errors import InvalidArgument, NullArgument
from ...core.meta import dtype_name
from ...core.profile import NOTHING, coded, documented
from ...core.registry import register
from ...core.rules import dtype_of, nd_format, rank, required, same_dtype, shape, shape_of, supported_dtypes
from ...core.soc import ATLAS_A2, ATLAS_A3, available_on
from ...core.spec import BF16, BOOL, F16, F32, F64, I32, I64, U8, Call, Difference, Float, OpSpec, Out, Rule, Tensor

HALVES = (F16, BF16)
GENEROUS = (F32, F64)
MIN_VOCABULARY = 128
MATRICES = ("input", "weight", "input_grad", "weight_grad")
STATISTICS = ("logits_max", "sum_exp_logits")
PROBABILITY_RANK = {"softmax": 2, "logits_max": 1, "sum_exp_logits": 1}


class LinearDims(NamedTuple):
    """BT tokens, H features, V rows of the local vocabulary."""

    BT: int
    H: int
    V: int


def product_flops(call: Call) -> int:
    """Operations of the product that gives the logits, and of each of the two that give its gradients."""
    return 2 * int(call.dims.BT * call.dims.H * call.dims.V)


def _flops(call: Call) -> int:
    """Two gradients, and the logits once more where the softmax is not given."""
    return (3 if call["softmax"] is None else 2) * product_flops(call)


def _dims(call: Call) -> LinearDims:
    return LinearDims(call["grad"].shape[0], call["input"].shape[1], call["weight"].shape[0])


def _mode(call: Call) -> tuple[str, ...]:
    """What the probabilities come from. Given the softmax, the statistics are neither validated nor read."""
    return STATISTICS if call["softmax"] is None else ("softmax",)


def _float_inputs(call: Call) -> tuple[str, ...]:
    return ("grad", *_mode(call))


def _active(call: Call) -> tuple[str, ...]:
    return ("grad", "input", "weight", "target_mask", "masked_target", *_mode(call), "input_grad", "weight_grad")


def for_active(rule: Callable[..., Rule]) -> Rule:
    """Apply a rule to the tensors that this mode reads."""
    return lambda call: rule(*_active(call))(call)


def probabilities_have_a_source(call: Call) -> None:
    """Either the softmax, or both statistics to recompute it from."""
    if call["softmax"] is None:
        for name in STATISTICS:
            if call[name] is None:
                label, softmax = call.label(name), call.label("softmax")
                raise NullArgument(f"{label} is null, expected a tensor because {softmax} is null", label)


def double_goes_with_double(call: Call) -> None:
    """float32 beside the matrices, whatever their type; float64 only beside float64 matrices."""
    for label, meta in call.metas(*_float_inputs(call)):
        if meta.dtype == F64 and call["input"].dtype != F64:
            expected = f"float32 beside {dtype_name(call['input'].dtype)} {call.label('input')}"
            raise InvalidArgument(f"{label} is float64, expected {expected}", label)


def no_label_smoothing(call: Call) -> None:
    """The document admits only 0."""
    if call["label_smoothing"] != 0:
        label = call.label("label_smoothing")
        raise InvalidArgument(f"{label} is {call['label_smoothing']}, expected 0", label)


def large_enough_vocabulary_of_a_softmax(call: Call) -> None:
    """The vendor's code has the limit for one of its two kernels."""
    if call["softmax"] is not None:
        large_enough_vocabulary(call)


def large_enough_vocabulary(call: Call) -> None:
    """The document's lower limit of V."""
    if call.dims.V < MIN_VOCABULARY:
        label = call.label("weight")
        raise InvalidArgument(f"{label} has {call.dims.V} rows, expected at least {MIN_VOCABULARY}", label)


def probability_ranks(call: Call) -> None:
    """The softmax is a matrix, the statistics are vectors."""
    for name in _mode(call):
        rank(PROBABILITY_RANK[name], PROBABILITY_RANK[name], name)(call)


def probability_shapes(call: Call) -> None:
    """Softmax [BT, V] or statistics [BT]."""
    for name in _mode(call):
        shape(name, *("BT", "V")[: PROBABILITY_RANK[name]])(call)


def mask_covers_tokens(call: Call) -> None:
    """One bit a token in uint8, one byte a token in bool."""
    mask, label, tokens = call["target_mask"], call.label("target_mask"), call.dims.BT
    if mask.dtype == BOOL and mask.shape[0] != tokens:
        raise InvalidArgument(f"{label} (bool) has {mask.shape[0]} entries, expected BT = {tokens}", label)
    if mask.dtype == U8 and mask.shape[0] * 8 < tokens:
        raise InvalidArgument(f"{label} (uint8) has {mask.shape[0]} bytes, expected at least {-(-tokens // 8)}", label)


def on_its_platform_unless_empty(call: Call) -> None:
    """Empty matrices succeed before the platform is looked at."""
    if call["input"].numel and call["weight"].numel:
        available_on(ATLAS_A2, ATLAS_A3)(call)


def reference_options(call: Call) -> dict[str, Any]:
    """The half type that the formula rounds to on its way."""
    dtype = call["input"].dtype
    return {"rounding": dtype if dtype in HALVES else None}


linear_cross_entropy_backward = register(
    OpSpec(
        name="linear_cross_entropy_backward",
        aclnn="aclnnFusedLinearCrossEntropyLossGrad",
        summary="gradient of a vocabulary-parallel fused linear cross entropy",
        package=__package__,
        args=(
            Tensor("grad", "grad", (F32,), generous=(F64,)),
            Tensor("input", "input", HALVES, generous=GENEROUS),
            Tensor("weight", "weight", HALVES, generous=GENEROUS),
            Tensor("target_mask", "targetMask", (U8, BOOL)),
            Tensor("masked_target", "maskedTarget", (I64, I32)),
            Float("label_smoothing", "labelSmoothing", c_type="float", default=0.0),
            Tensor("logits_max", "logitsMaxOptional", (F32,), generous=(F64,), default=None),
            Tensor("sum_exp_logits", "sumExpLogitsOptional", (F32,), generous=(F64,), default=None),
            Tensor("softmax", "softmaxOptional", (F32,), generous=(F64,), default=None),
        ),
        outs=(
            Out("input_grad", "inputGradOut", HALVES, shape_of("input"), dtype_of("input"), generous=GENEROUS),
            Out("weight_grad", "weightGradOut", HALVES, shape_of("weight"), dtype_of("input"), generous=GENEROUS),
        ),
        dims=_dims,
        unread=lambda call: () if call["softmax"] is None else tuple(map(call.label, STATISTICS)),
        flops=_flops,
        differences=(
            Difference(f"V < {MIN_VOCABULARY}", "161002", "161002 if softmaxOptional is given, else accepted"),
            Difference("an empty input or weight", "success; outputs with elements are zeros", NOTHING),
            Difference("softmaxOptional after the call", "as it was", "overwritten", imitated=False),
        ),
        skipped=lambda call: 0 in (call.tensor("input").numel, call.tensor("weight").numel),
        rules=(
            probabilities_have_a_source,
            required("grad", "input", "weight", "target_mask", "masked_target", "input_grad", "weight_grad"),
            for_active(supported_dtypes),
            same_dtype(MATRICES),
            double_goes_with_double,
            for_active(nd_format),
            no_label_smoothing,
            rank(1, 1, "grad", "target_mask", "masked_target"),
            rank(2, 2, *MATRICES),
            probability_ranks,
            shape("input", "BT", "H"),
            documented(large_enough_vocabulary),
            coded(large_enough_vocabulary_of_a_softmax),
            shape("weight", "V", "H"),
            mask_covers_tokens,
            shape("masked_target", "BT"),
            probability_shapes,
            shape("input_grad", "BT", "H"),
            shape("weight_grad", "V", "H"),
            on_its_platform_unless_empty,
        ),
        reference_options=reference_options,
    )
)
