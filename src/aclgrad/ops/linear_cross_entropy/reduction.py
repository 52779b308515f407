"""Losses of all tokens as a reduction wants them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .arguments import Arguments
from .spec_training import counts


def reduced(losses: Tensor, given: Arguments) -> Tensor:
    """Each times its weight, and if it is wanted their sum or mean."""
    if given.token_weight is not None:
        losses = losses * given.token_weight
    if given.reduction == "none":
        return losses
    return losses.sum() / normalizer(given) if given.reduction == "mean" else losses.sum()


def normalizer(given: Arguments) -> Tensor:
    """What the mean divides by: the number of tokens that count, or the sum of their targets' weights."""
    if given.normalizer is not None:
        return given.normalizer
    if given.target.is_floating_point():
        number = math.prod(given.target.shape[:-1])
        return torch.full((), number, dtype=given.wide, device=given.input.device)
    counted = counts(given.target, given.ignore_index)
    if given.classes is None:
        return counted.sum().to(given.wide)
    rows = given.target.long().clamp(0, given.classes.shape[0] - 1)
    return torch.where(counted, given.classes[rows], 0.0).sum()
