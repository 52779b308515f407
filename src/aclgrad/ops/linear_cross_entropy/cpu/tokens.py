"""Every token's loss from its statistics, and what the gradient of the logits needs to know of it.

Small kernels on one thread: there are as many tokens as the logits have rows. The formulas are those of
`../reference_training.py`. Vectors that a call does not have are any memory, and a number says so.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from aclgrad.core.spec import Call
from aclgrad.cpu.compiler import jit

from .options import RowOptions
from .targets import is_wide, target_at


class TokenNumbers(NamedTuple):
    """Sizes, options and strides."""

    tokens: int
    vocabulary: int
    wide_target: int  # see `targets.py`
    ignored: int
    finds: int  # log-probabilities, entropy, …
    smooths: int
    weighs: int  # there are class weights
    label_smoothing: float
    z_loss: float
    softcap: float
    logit_scale: float

    @classmethod
    def of(cls, call: Call) -> TokenNumbers:
        """Those of a call for training."""
        options = RowOptions.of(call)
        return cls(
            call.dims.BT, call.dims.V, is_wide(call["target"]), call["ignore_index"], int(options.finds),
            int(options.smooths), int(call["class_weight"] is not None), float(call["label_smoothing"]),
            float(call["z_loss"]), float(call["softcap"]), float(call["logit_scale"]),
        )  # fmt: skip


SIZES = len(TokenNumbers._fields)


@jit
def _class_total(of: TokenNumbers, classes: Any) -> float:
    if not (of.smooths and of.weighs):
        return float(of.vocabulary)
    total = 0.0
    for v in range(of.vocabulary):
        total += classes[v]
    return total


@jit
def _class_weight(of: TokenNumbers, classes: Any, row: int) -> float:
    return classes[row] if of.weighs and 0 <= row < of.vocabulary else 1.0


@jit
def _log_total(here: bool, others: Any, total: Any, predicted: Any) -> Any:
    """Log Σ exp(logit − largest): of the sum less 1, which is what the others add up to, if the own one is largest."""
    return math.log1p(others + math.expm1(predicted)) if here else math.log(total)


class FoundStrides(NamedTuple):
    """Strides of the vectors of `find_tokens`, in their order; scratch vectors have none."""

    target: int
    top: int
    total: int
    others: int
    predicted: int
    loss: int
    logprob: int
    entropy: int
    lse: int
    correct: int


def find_tokens(
    _thread: int, _threads: int, target: int, top: Any, total: Any, others: Any, predicted: Any, product_sum: Any,
    weighed: Any, won: Any, classes: Any, loss: Any, logprob: Any, entropy: Any, lse: Any, correct: Any, *numbers: Any,
) -> None:  # fmt: skip
    """Losses of all tokens; log-probability, entropy, lse and whether the own target wins, if they are wanted."""
    of, at = TokenNumbers(*numbers[:SIZES]), FoundStrides(*numbers[SIZES:])
    class_total = _class_total(of, classes)
    for token in range(of.tokens):
        row = target_at(target, of.wide_target, token * at.target)
        here, counts = 0 <= row < of.vocabulary, row != of.ignored
        sums, largest, own = total[token * at.total], top[token * at.top], predicted[token * at.predicted]
        log_total = _log_total(here, others[token * at.others], sums, own)
        nll = log_total - own if here else math.nan
        found = (1.0 - of.label_smoothing) * _class_weight(of, classes, row) * nll
        if of.smooths:
            found -= of.label_smoothing / of.vocabulary * (weighed[token] - class_total * log_total)
        if of.z_loss != 0.0:
            found += of.z_loss * (largest + log_total) * (largest + log_total)
        loss[token * at.loss] = found if counts else 0.0
        if of.finds:
            logprob[token * at.logprob] = -nll if counts else 0.0
            entropy[token * at.entropy] = log_total - product_sum[token] / sums
            lse[token * at.lse] = largest + log_total
            correct[token * at.correct] = won[token] if counts else 0


class ShareNumbers(NamedTuple):
    """Sizes, options and strides of `share_losses`."""

    tokens: int
    wide_target: int
    ignored: int
    mean: int
    weighs: int  # tokens have weights
    divides: int  # by a number that is given
    target: int
    losses: int
    token_weight: int


def share_losses(
    _thread: int, _threads: int, target: int, losses: Any, token_weight: Any, normalizer: Any, loss: Any, grad: Any,
    *numbers: int,
) -> None:  # fmt: skip
    """The sum or the mean of all losses, and what each of them counts in it."""
    of = ShareNumbers(*numbers)
    count = 0
    for token in range(of.tokens):
        count += target_at(target, of.wide_target, token * of.target) != of.ignored
    by = 1.0
    if of.divides:
        by = float(normalizer[0])
    elif of.mean:
        by = float(count)
    total = 0.0
    for token in range(of.tokens):
        counts = target_at(target, of.wide_target, token * of.target) != of.ignored
        weight = float(token_weight[token * of.token_weight]) if of.weighs else 1.0
        grad[token] = weight / by if counts else 0.0
        if counts:
            total += weight * losses[token * of.losses]
    loss[0] = total / by


class SlopeNumbers(NamedTuple):
    """What is given, and strides, of `weigh_tokens`."""

    of_logprob: int
    of_entropy: int
    of_lse: int
    has_predicted: int
    target: int
    grad: int
    logprob_grad: int
    entropy_grad: int
    lse_grad: int
    top: int
    total: int
    others: int
    predicted: int
    entropy: int


def weigh_tokens(
    _thread: int, _threads: int, target: int, grad: Any, logprob_grad: Any, entropy_grad: Any, lse_grad: Any, top: Any,
    total: Any, others: Any, predicted: Any, entropy: Any, classes: Any, alpha: Any, beta: Any, delta: Any,
    own_slope: Any, *numbers: Any,
) -> None:  # fmt: skip
    """α, β and δ of the slopes ((α + β·(z − largest))·p − δ·c)·∂z/∂sum, and the whole slope at the own target."""
    of, at = TokenNumbers(*numbers[:SIZES]), SlopeNumbers(*numbers[SIZES:])
    class_total = _class_total(of, classes)
    for token in range(of.tokens):
        row = target_at(target, of.wide_target, token * at.target)
        here, counts = 0 <= row < of.vocabulary, row != of.ignored
        sums, rest_sum, largest = total[token * at.total], others[token * at.others], top[token * at.top]
        weight = (float(grad[token * at.grad]) if here else math.nan) if counts else 0.0
        own = float(predicted[token * at.predicted]) if at.has_predicted else 0.0
        own_p = math.exp(own) / sums
        class_weight = _class_weight(of, classes, row)
        of_nll = (1.0 - of.label_smoothing) * class_weight * weight
        if at.of_logprob and counts:
            of_nll -= logprob_grad[token * at.logprob_grad]
        smoothing = weight * (of.label_smoothing / of.vocabulary)
        rest, bent = smoothing * class_total, 0.0
        if of.z_loss != 0.0:
            rest += 2.0 * of.z_loss * (largest + math.log(sums)) * weight
        if at.of_lse:
            rest += lse_grad[token * at.lse_grad]
        if at.of_entropy:
            mean = _log_total(here, rest_sum, sums, own) - entropy[token * at.entropy]
            bent = -float(entropy_grad[token * at.entropy_grad])
            rest -= bent * mean
        alpha[token], beta[token], delta[token] = of_nll + rest, bent, smoothing
        slope = rest * own_p - of_nll * (rest_sum / sums) - smoothing * class_weight
        if own_p > 0.0:
            slope += bent * own * own_p
        if of.softcap != 0.0:
            share = (own + largest) / of.softcap
            slope *= 1.0 - share * share
        own_slope[token] = slope * of.logit_scale
