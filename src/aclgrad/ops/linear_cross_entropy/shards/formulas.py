"""What shards found of the tokens, united; the losses, and what every shard needs to know for the gradients.

These are the only formulas for it, whoever brings the shards together. They are in float64 on vectors of tokens, which
costs nothing beside the matrices, and hides the order of a sum from a result that is rounded to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..spec_shards import Found


class Options(NamedTuple):
    """Of the loss, beside those that the logits have in them."""

    label_smoothing: float
    softcap: float
    logit_scale: float
    z_loss: float
    classes: int  # rows of the whole vocabulary


class United(NamedTuple):
    """Of the whole vocabulary, [BT] each. It has no properties, since torch 2.10 does not compile them."""

    top: Tensor  # the largest logit
    others: Tensor  # Σ exp(logit − top) but of the own target
    total: Tensor  # with it
    predicted: Tensor  # the own target's logit − top; 0 where no shard has it
    owners: Tensor  # how many shards have it
    mean: Tensor | None  # Σ p · (logit − top)
    weighed: Tensor | None  # Σ class weight · (logit − top)
    correct: Tensor | None  # whether the own target is the first of the largest

    def here(self) -> Tensor:
        """Whether there is the own target."""
        return self.owners == 1

    def log_total(self) -> Tensor:
        """log total, as precise where the own target is almost all of it."""
        own = torch.log1p(self.others + torch.expm1(self.predicted))
        return torch.where(self.here(), own, torch.log(self.total))

    def nll(self) -> Tensor:
        """−log p of the own target, NaN where there is none."""
        return torch.where(self.here(), self.log_total() - self.predicted, torch.nan)

    def lse(self) -> Tensor:
        """Log Σ exp(logit)."""
        return self.top + self.log_total()


def unite(found: Tensor, places: Found, class_sums: Tensor | None) -> United:
    """From what shards found [W, K, BT], in the order of the vocabulary.

    `class_sums` [W] are Σ class weight of every shard; needed where weighed sums were asked for.
    """
    found = found.double()
    tops, rest, own = found[:, places.top], found[:, places.others], found[:, places.predicted]
    is_here = ~(own > 0)  # a NaN is somebody's logit
    top = tops.amax(0)
    further, no_logit = tops - top, tops == -torch.inf
    power = torch.exp(further)
    others = torch.where(no_logit, 0.0, rest * power).sum(0)
    own_logit = torch.where(no_logit, further, own + further)  # where all are -Inf, so is that
    predicted = torch.where(is_here, own_logit, 0.0).sum(0)
    owners = is_here.sum(0)
    total = torch.where(owners == 1, others + torch.exp(predicted), others)
    mean = weighed = correct = None
    if places.weighed is not None:
        assert class_sums is not None  # whoever smooths knows them
        least = torch.where(top == -torch.inf, 0.0, top)
        shift = class_sums[:, None] * (torch.where(no_logit, 0.0, tops) - least)
        weighed = (found[:, places.weighed] + shift).sum(0)
    if places.mixed is not None and places.wins is not None:
        whole = rest + torch.where(is_here, torch.exp(own), 0.0)
        mixed = torch.where(no_logit, 0.0, power * (found[:, places.mixed] + further * whole))
        mean = torch.where(power > 0, mixed, power * 0).sum(0) / total
        owner = is_here.to(torch.uint8).argmax(0, keepdim=True)
        rank = torch.arange(len(tops), device=tops.device)[:, None]
        own_top = tops.gather(0, owner)
        unbeaten = (tops < own_top) | ((tops == own_top) & (rank >= owner))
        won = found[:, places.wins].gather(0, owner)[0] > 0
        correct = unbeaten.all(0) & won & (owners == 1)
    return United(top, others, total, predicted, owners, mean, weighed, correct)


class Results(NamedTuple):
    """What users see, [BT] each, in float64; those of tokens that do not count are 0, but for entropy and lse."""

    loss: Tensor
    logprob: Tensor | None
    entropy: Tensor | None
    lse: Tensor | None
    correct: Tensor | None


def results_of(
    of: United, counts: Tensor, own_class: Tensor | None, class_sum: Tensor | float, options: Options
) -> Results:
    """Losses, and what else was asked for.

    `counts` says which tokens do, `own_class` is the class weight of each target, `class_sum` that of all classes.
    """
    nll, log_total = of.nll(), of.log_total()
    loss = (1 - options.label_smoothing) * (nll if own_class is None else nll * own_class)
    if of.weighed is not None:
        loss = loss + options.label_smoothing / options.classes * (class_sum * log_total - of.weighed)
    if options.z_loss:
        loss = loss + options.z_loss * of.lse().square()
    loss = torch.where(counts, loss, 0.0)
    if of.mean is None or of.correct is None:
        return Results(loss, None, None, None, None)
    return Results(loss, torch.where(counts, -nll, 0.0), log_total - of.mean, of.lse(), of.correct & counts)


class Slopes(NamedTuple):
    """What a shard needs of every token for its gradients: `spec_shards.SLOPES`."""

    alpha: Tensor
    own_slope: Tensor
    beta: Tensor | None
    delta: Tensor | None


def slopes_of(
    of: United,
    upstream: Sequence[Tensor | None],
    counts: Tensor,
    own_class: Tensor | None,
    class_sum: Tensor | float,
    options: Options,
) -> Slopes:
    """For gradients of loss, logprob, entropy and lse, [BT] or None each. A target that nobody has makes NaN."""
    of_loss, of_logprob, of_entropy, of_lse = (None if g is None else g.double() for g in upstream)
    zero = torch.zeros_like(of.top)
    loss = zero if of_loss is None else torch.where(counts, torch.where(of.here(), of_loss, torch.nan), 0.0)
    of_nll = (1 - options.label_smoothing) * (loss if own_class is None else loss * own_class)
    if of_logprob is not None:
        of_nll = of_nll - torch.where(counts, of_logprob, 0.0)
    own_p = torch.exp(of.predicted) / of.total
    rest, delta = zero, None
    if of.weighed is not None:
        delta = loss * (options.label_smoothing / options.classes)
        rest = rest + delta * class_sum
    if options.z_loss:
        rest = rest + 2 * options.z_loss * of.lse() * loss
    if of_lse is not None:
        rest = rest + of_lse
    beta = None
    if of_entropy is not None:
        assert of.mean is not None  # what is differentiated was asked for
        rest, beta = rest + of_entropy * of.mean, -of_entropy
    own = rest * own_p - of_nll * (of.others / of.total)
    if delta is not None:
        own = own - (delta if own_class is None else delta * own_class)
    if beta is not None:
        own = own + torch.where(own_p > 0, beta * of.predicted * own_p, 0.0)
    if options.softcap:
        own = own * (1 - ((of.predicted + of.top) / options.softcap).square())
    return Slopes(of_nll + rest, own * options.logit_scale, beta, delta)
