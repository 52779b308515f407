"""Contracts of the operators for training, which no document knows: a whole vocabulary, every option of the loss.

With z = softcap · tanh(logit_scale · (input · weightᵀ + bias) / softcap), or without softcap the scaled sum alone, a
token of target t has

    loss    = (1 − ε) · c[t] · (lse − z[t]) + ε / V · Σ_v c[v] · (lse − z[v]) + z_loss · lse²
    logprob = z[t] − lse        entropy = lse − Σ_v p[v] · z[v]        lse = log Σ_v exp z[v]        p = exp(z − lse)

where c is `class_weight`, or 1, and ε is `label_smoothing`. A token whose target is `ignore_index` has loss and logprob
0; its entropy and lse are as good as those of others. One whose target is no row of the weight has NaN for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ...core.errors import InvalidArgument, NullArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import register
from ...core.rules import dtype_of, rank, required, same_dtype, shape, shape_of, supported_dtypes
from ...core.spec import BF16, BOOL, F16, F32, F64, I32, I64, Call, Flag, Float, Int, OpSpec, Out, Rule
from ...core.spec import Tensor as TensorParam
from .spec import LinearDims, product_flops, reference_options
from .spec_forward import some_vocabulary, wide_of

FLOATS, WIDE = (BF16, F16, F32, F64), (F32, F64)
REDUCTIONS = ("mean", "sum", "none")
STATISTICS = ("logits_max", "sum_exp_logits", "sum_exp_others")  # the last without the own target
OF_TOKENS = ("logprob", "entropy", "lse")  # what a user may ask for beside the loss, and differentiate
IGNORE_INDEX = -100  # torch's default

_SOMETIMES = ("predicted_logits", "entropy", "logprob_grad", "entropy_grad", "lse_grad")
"""What the gradient takes beside: the own targets' logits, less the largest; the entropy; gradients of what was asked
for beside the loss."""

_INPUTS = (
    TensorParam("input", "input", FLOATS),
    TensorParam("weight", "weight", FLOATS),
    TensorParam("target", "target", (I32, I64)),
    Int("ignore_index", "ignoreIndex"),
)
_WANTS = (Flag("wants_input_grad", "wantsInputGrad"), Flag("wants_weight_grad", "wantsWeightGrad"))
_OPTIONS = (
    TensorParam("bias", "bias", WIDE, default=None),
    TensorParam("class_weight", "classWeight", WIDE, default=None),
    Float("label_smoothing", "labelSmoothing", default=0.0),
    Float("softcap", "softcap", default=0.0),
    Float("logit_scale", "logitScale", default=1.0),
    Float("z_loss", "zLoss", default=0.0),
)
OPTIONS = tuple(option.name for option in _OPTIONS)
_WANTS_BIAS_GRAD = Flag("wants_bias_grad", "wantsBiasGrad", default=False)
_WANTS_STATISTICS = Flag("wants_statistics", "wantsStatistics", default=False)


def _asked(name: str) -> Callable[[Call], bool]:
    return lambda call: bool(call[name])


def _of_tokens(name: str, wanted: Callable[[Call], bool] = lambda _: True) -> Out:
    """A number for every token."""
    return Out(name, name, WIDE, lambda call: (call.dims.BT,), wide_of("input"), wanted=wanted)


_GRADIENTS = (
    Out(
        "input_grad", "inputGrad", FLOATS, shape_of("input"), dtype_of("input"), wanted=_asked("wants_input_grad")
    ),
    Out(
        "weight_grad", "weightGrad", FLOATS, shape_of("weight"), dtype_of("input"), wanted=_asked("wants_weight_grad")
    ),
    Out(
        "bias_grad", "biasGrad", WIDE, lambda call: (call.dims.V,), wide_of("input"), wanted=_asked("wants_bias_grad"),
        rounded_as="input",
    ),
)  # fmt: skip
_FOUND = (
    *(_of_tokens(name, _asked("wants_statistics")) for name in OF_TOKENS),
    Out("correct", "correct", (BOOL,), lambda call: (call.dims.BT,), lambda _: BOOL, wanted=_asked("wants_statistics")),
)


def given(name: str, *rules: Rule) -> Rule:
    """Rules about an argument, looked at where it is given."""

    def check(call: Call) -> None:
        if call[name] is not None:
            for rule in rules:
                rule(call)

    return check


def wide(name: str) -> Rule:
    """The argument has the dtype of sums."""

    def check(call: Call) -> None:
        sums, found, label = wide_of("input")(call), call[name].dtype, call.label(name)
        if found != sums:
            expected = f"{dtype_name(sums)} beside {dtype_name(call['input'].dtype)} {call.label('input')}"
            raise InvalidArgument(f"{label} is {dtype_name(found)}, expected {expected}", label)

    return check


def differentiates(call: Call) -> bool:
    """Whether a gradient is wanted of `loss_and_gradients`."""
    return any(call[f"{name}_grad"] is not None for name in ("input", "weight", "bias"))


PULLS = ("label_smoothing", "softcap", "z_loss")
"""Options by which p of the own target counts itself, and not as what is left of 1: that would lose a small one."""


def needs_predicted(call: Call | Mapping[str, Any]) -> bool:
    """Whether the gradient needs the own target's logit itself."""
    return bool(call["wants_statistics"] or any(call[name] for name in PULLS))


def _needed_by_the_gradient(call: Call) -> None:
    """Of what the gradient takes beside, it must have what these options differentiate."""
    given = [name for name in ("entropy_grad", "lse_grad") if call[name] is not None]
    own = [*given, *(name for name in PULLS if call[name])]
    for name, needed, by in (
        ("predicted_logits", own, " and ".join(own)), ("entropy", "entropy_grad" in given, "entropy_grad"),
    ):  # fmt: skip
        if needed and call[name] is None:
            raise NullArgument(f"{call.label(name)} is null, expected a tensor beside {by}", call.label(name))


def numbers_in_range(*names: str) -> Rule:
    """Options that are numbers lie in their ranges."""
    holds: Mapping[str, tuple[Callable[[float], bool], str]] = {
        "label_smoothing": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
        "softcap": (lambda value: 0 <= value < math.inf, "a positive number, or 0 for none"),
        "logit_scale": (math.isfinite, "a finite number"),
        "z_loss": (math.isfinite, "a finite number"),
    }

    def check(call: Call) -> None:
        for name in names:
            lies_in_range, expected = holds[name]
            if not lies_in_range(call[name]):
                raise InvalidArgument(f"{call.label(name)} is {call[name]}, expected {expected}", call.label(name))

    return check


_RULES: tuple[Rule, ...] = (
    required("input", "weight", "target"),
    supported_dtypes("input", "weight", "target", "bias", "class_weight"),
    same_dtype(("weight",), base="input"),
    rank(2, 2, "input", "weight"),
    rank(1, 1, "target"),
    some_vocabulary,
    shape("weight", "V", "H"),
    shape("target", "BT"),
    *(given(name, wide(name), shape(name, "V")) for name in ("bias", "class_weight")),
    numbers_in_range("label_smoothing", "softcap", "logit_scale", "z_loss"),
)


def _dims(call: Call) -> LinearDims:
    tokens, features = call.tensor("input").shape
    return LinearDims(tokens, features, call.tensor("weight").shape[0])


def _flops(call: Call) -> int:
    """The logits, and a product for every gradient that is wanted."""
    return product_flops(call) * (1 + bool(call["wants_input_grad"]) + bool(call["wants_weight_grad"]))


def counts(target: Tensor, ignore_index: int) -> Tensor:
    """Which tokens count. torch would cut `ignore_index` to the dtype of the targets."""
    return target.long() != ignore_index


def targets_exist(args: Sequence[Any]) -> None:
    """Every target is a row of the weight or ignored."""
    _, weight, target, ignore_index, *_ = args
    rows = weight.shape[0]
    if target.numel():
        least, most = target.aminmax()
        if least.item() >= 0 and most.item() < rows:  # numbers are compared faster than tensors
            return
    wrong = (counts(target, ignore_index) & ((target < 0) | (target >= rows))).nonzero()
    if wrong.numel():
        token = int(wrong[0])
        expected = f"0 to {rows - 1} or ignore_index = {ignore_index}"
        raise InvalidArgument(f"target[{token}] is {int(target[token])}, expected {expected}", "target")


def _loss_is_nan(outs: Sequence[Any]) -> bool:
    """As that of a target that is no row of the weight is, and with it the loss of all tokens."""
    return math.isnan(outs[0])


def _operator(name: str, summary: str, args: tuple[Any, ...], outs: tuple[Out, ...], **options: Any) -> Operator:
    """An operator that no document knows."""
    contract: dict[str, Any] = {"rules": _RULES, "dims": _dims, "reference_options": reference_options, **options}
    contract["flops"] = _flops
    return register(OpSpec(name, "", args, outs, summary=summary, package=__package__, **contract))


together = _operator(
    "loss_and_gradients",
    "cross entropy of a linear layer with its gradients",
    (
        *_INPUTS, Flag("mean", "mean"), *_WANTS, *_OPTIONS,
        TensorParam("token_weight", "tokenWeight", WIDE, default=None),
        TensorParam("normalizer", "normalizer", WIDE, default=None),
        _WANTS_BIAS_GRAD, _WANTS_STATISTICS,
    ),
    (
        Out("loss", "loss", WIDE, lambda _: (), wide_of("input")),
        *_GRADIENTS,
        _of_tokens("losses", lambda call: call["token_weight"] is not None),
        *(_of_tokens(name, _asked("wants_statistics")) for name in (*STATISTICS, "predicted_logits")),
        *_FOUND,
    ),
    rules=(
        *_RULES,
        supported_dtypes("token_weight", "normalizer"),
        given("token_weight", wide("token_weight"), shape("token_weight", "BT")),
        given("normalizer", wide("normalizer"), rank(0, 0, "normalizer")),
    ),
    value_rule=targets_exist,
    betrays=_loss_is_nan,
)  # fmt: skip

losses = _operator(
    "token_losses",
    "cross entropy of a linear layer for every token, and the statistics that its gradient needs",
    (*_INPUTS, *_OPTIONS, _WANTS_STATISTICS),
    (*(_of_tokens(name) for name in ("loss", *STATISTICS)), _of_tokens("predicted_logits", needs_predicted), *_FOUND),
    value_rule=targets_exist,
)

gradients = _operator(
    "token_gradients",
    "gradient of token_losses",
    (
        TensorParam("grad", "grad", WIDE), *_INPUTS, *(TensorParam(name, name, WIDE) for name in STATISTICS), *_WANTS,
        *_OPTIONS, *(TensorParam(name, name, WIDE, default=None) for name in _SOMETIMES), _WANTS_BIAS_GRAD,
    ),
    _GRADIENTS,
    rules=(
        *_RULES,
        required("grad", *STATISTICS),
        supported_dtypes("grad", *STATISTICS, *_SOMETIMES),
        *(given(name, wide(name), shape(name, "BT")) for name in ("grad", *STATISTICS, *_SOMETIMES)),
        _needed_by_the_gradient,
    ),
)  # fmt: skip
