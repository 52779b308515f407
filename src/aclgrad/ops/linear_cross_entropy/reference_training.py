"""The textbook of the operators for training: the loss with all its options, written out on a matrix of all logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .spec_training import needs_predicted


def bent(products: Tensor, bias: Tensor | None, softcap: float, logit_scale: float) -> Tensor:
    """Logits of products with the weight: plus bias, times the scale, within the softcap."""
    z = logit_scale * (products if bias is None else products + bias)
    return softcap * torch.tanh(z / softcap) if softcap else z


def logits_of(
    input: Tensor, weight: Tensor, bias: Tensor | None, softcap: float, logit_scale: float
) -> tuple[Tensor, Tensor]:
    """(z [BT, V], ∂z/∂(input · weightᵀ) [BT, V] or [])."""
    z = bent(input @ weight.t(), bias, softcap, logit_scale)
    slope = torch.full((), logit_scale, dtype=z.dtype, device=z.device)
    return z, slope * (1 - (z / softcap).square()) if softcap else slope


def token_losses(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    ignore_index: int,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    z_loss: float = 0.0,
    wants_statistics: bool = False,
    *,
    rounding: torch.dtype | None = None,  # noqa: ARG001  no logit is rounded
) -> tuple[Tensor | None, ...]:
    """(loss, largest logit, Σ exp(logit − largest), that without the own target, …), [BT] each; `spec_training.py`."""
    z, _ = logits_of(input, weight, bias, softcap, logit_scale)
    of = _tokens(z, target, ignore_index)
    given = {"label_smoothing": label_smoothing, "softcap": softcap, "z_loss": z_loss}
    predicted = of.predicted if needs_predicted({**given, "wants_statistics": wants_statistics}) else None
    found = (-of.nll, of.entropy, of.lse, of.correct) if wants_statistics else (None,) * 4
    return _losses(z, of, class_weight, label_smoothing, z_loss), of.top, of.total, of.others, predicted, *found


class Tokens(NamedTuple):
    """What the formulas need of every token, [BT] each."""

    ignored: Tensor
    missing: Tensor  # the target is no row of the weight
    own: Tensor  # [BT, 1], 0 where it is missing
    top: Tensor  # the largest logit
    total: Tensor  # Σ exp(logit − top)
    others: Tensor  # that without the own target
    predicted: Tensor  # the own target's logit − top
    log_total: Tensor
    nll: Tensor  # −log p of the own target; 0 where it is ignored, NaN where it is missing
    entropy: Tensor
    correct: Tensor  # whether the own target is the first of the largest

    @property
    def lse(self) -> Tensor:
        """Log Σ exp(logit)."""
        return self.top + self.log_total


def _tokens(z: Tensor, target: Tensor, ignore_index: int) -> Tokens:
    top = z.amax(1)
    left = z - top[:, None]
    missing = (target < 0) | (target >= z.shape[1])
    own = torch.where(missing, 0, target).long()[:, None]
    ignored = target == ignore_index
    predicted = torch.where(missing, 0.0, left.gather(1, own)[:, 0])
    without = torch.where(missing[:, None], left, left.scatter(1, own, -torch.inf))
    others = torch.exp(without).sum(1)
    total = torch.where(missing, others, others + torch.exp(predicted))
    log_total = torch.where(missing, torch.log(total), torch.log1p(others + torch.expm1(predicted)))
    nll = torch.where(ignored, 0.0, torch.where(missing, torch.nan, log_total - predicted))
    e = torch.exp(left)
    mean = torch.where(e > 0, e * left, e * 0).sum(1) / total
    correct = ~ignored & ~missing & ~top.isnan() & (z.argmax(1) == own[:, 0])
    return Tokens(ignored, missing, own, top, total, others, predicted, log_total, nll, log_total - mean, correct)


def _losses(z: Tensor, of: Tokens, class_weight: Tensor | None, label_smoothing: float, z_loss: float) -> Tensor:
    """The loss of every token."""
    loss = of.nll * (1 - label_smoothing)
    if class_weight is not None:
        loss = loss * class_weight[of.own[:, 0]]
    if label_smoothing:
        log_p = z - of.top[:, None] - of.log_total[:, None]
        weighed = log_p if class_weight is None else log_p * class_weight
        loss = loss - label_smoothing / z.shape[1] * weighed.sum(1)
    if z_loss:
        loss = loss + z_loss * of.lse.square()
    return torch.where(of.ignored, 0.0, loss)


def token_gradients(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    ignore_index: int,
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    sum_exp_others: Tensor,
    wants_input_grad: bool,
    wants_weight_grad: bool,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    z_loss: float = 0.0,
    predicted_logits: Tensor | None = None,  # noqa: ARG001  found again
    entropy: Tensor | None = None,
    logprob_grad: Tensor | None = None,
    entropy_grad: Tensor | None = None,
    lse_grad: Tensor | None = None,
    wants_bias_grad: bool = False,
    *,
    rounding: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(input_grad [BT, H], weight_grad [V, H], bias_grad [V]) of `token_losses`, None for one that is not wanted.

    `rounding` is the half type that the slopes pass through. A target that is none of the vocabulary makes them NaN.
    """
    z, inner = logits_of(input, weight, bias, softcap, logit_scale)
    of = _tokens(z, target, ignore_index)
    of = of._replace(top=logits_max, total=sum_exp_logits, others=sum_exp_others)
    if entropy is not None:
        of = of._replace(entropy=entropy)
    upstream = (grad, logprob_grad, entropy_grad, lse_grad)
    p = _slopes(z, of, upstream, class_weight, label_smoothing, z_loss) * inner
    return products_with(p, input, weight, (wants_input_grad, wants_weight_grad, wants_bias_grad), rounding)


def _slopes(
    z: Tensor, of: Tokens, upstream: Sequence[Tensor | None], class_weight: Tensor | None, label_smoothing: float,
    z_loss: float,
) -> Tensor:  # fmt: skip
    """∂(Σ gradient · result)/∂z [BT, V], for the gradients of loss, logprob, entropy and lse; see the README."""
    counts = ~of.ignored
    of_loss, of_logprob, of_entropy, of_lse = (0.0 if g is None else g for g in upstream)
    of_loss, of_logprob = (torch.where(counts, g, 0.0) for g in (of_loss, torch.as_tensor(of_logprob).to(z)))
    of_loss = torch.where(of.missing & counts, torch.nan, of_loss)
    classes = z.new_ones(()).expand(z.shape[1]) if class_weight is None else class_weight
    smoothing = of_loss * (label_smoothing / z.shape[1])
    of_nll = of_loss * (1 - label_smoothing) * classes[of.own[:, 0]] - of_logprob
    mean = of.log_total - of.entropy
    rest = smoothing * classes.sum() + 2 * z_loss * of.lse * of_loss + of_lse + of_entropy * mean
    left = z - of.top[:, None]
    p = torch.exp(left) / of.total[:, None]
    slopes = (of_nll + rest)[:, None] * p - smoothing[:, None] * classes
    own_p = torch.exp(of.predicted) / of.total
    own = rest * own_p - of_nll * (of.others / of.total) - smoothing * classes[of.own[:, 0]]
    if isinstance(of_entropy, Tensor):
        slopes = slopes - of_entropy[:, None] * torch.where(p > 0, left * p, 0.0)
        own = own - of_entropy * torch.where(own_p > 0, of.predicted * own_p, 0.0)
    return torch.where(of.missing[:, None], slopes, slopes.scatter(1, of.own, own[:, None]))


def products_with(
    p: Tensor, input: Tensor, weight: Tensor, wants: Sequence[bool], rounding: torch.dtype | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias for the slopes p [BT, V]; None for one that is not wanted."""
    p = (p if rounding is None else p.to(rounding)).to(input.dtype)
    return p @ weight if wants[0] else None, p.t() @ input if wants[1] else None, p.sum(0) if wants[2] else None


def loss_and_gradients(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    ignore_index: int,
    mean: bool,
    wants_input_grad: bool,
    wants_weight_grad: bool,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    normalizer: Tensor | None = None,
    wants_bias_grad: bool = False,
    wants_statistics: bool = False,
    *,
    rounding: torch.dtype | None = None,
) -> tuple[Tensor | None, ...]:
    """(loss, input_grad, weight_grad, bias_grad, …) of the mean or the sum over all tokens; see `spec_training.py`.

    The mean is by `normalizer`, or by the number of tokens whose target is not `ignore_index`. `rounding` is the half
    type that the slopes pass through.
    """
    z, inner = logits_of(input, weight, bias, softcap, logit_scale)
    of = _tokens(z, target, ignore_index)
    losses = _losses(z, of, class_weight, label_smoothing, z_loss)
    count = normalizer if normalizer is not None else (~of.ignored).sum() if mean else 1
    weights = torch.ones_like(losses) if token_weight is None else token_weight
    p = _slopes(z, of, (weights / count, None, None, None), class_weight, label_smoothing, z_loss) * inner
    gradients = products_with(p, input, weight, (wants_input_grad, wants_weight_grad, wants_bias_grad), rounding)
    asked = (of.top, of.total, of.others, of.predicted, -of.nll, of.entropy, of.lse, of.correct)
    each = torch.where(of.ignored, 0.0, losses * weights)
    return (
        each.sum() / count, *gradients, None if token_weight is None else losses,
        *(asked if wants_statistics else (None,) * len(asked)),
    )  # fmt: skip
