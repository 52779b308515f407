"""The loss on a matrix of all logits, by torch's own operations: for what the operators do not take."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import linear, nll_loss

from .._shared.small import REFUSALS, is_exact, is_served
from .reference_training import bent
from .spec_training import IGNORE_INDEX

SMALL = 1 << 24
"""Products of numbers, those of the logits, up to which torch's own operations are faster in training."""

SMALL_WITHOUT_GRADIENT = 1 << 22
"""Those up to which they are faster where no gradient is wanted."""

CONFIDENT = -(2.0**-6)
"""The log-probability from which on torch's differences, of lse and logit and of p and 1, lose digits."""


def small(
    input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, classes: Tensor | None, reduction: str,
    ignore_index: int | None,
) -> Tensor | None:  # fmt: skip
    """The loss by torch's functions if that is faster, as exact, and they take the arguments; else None."""
    if not (is_served(input, weight, target, bias, classes) and is_exact(input)):
        return None
    limit = SMALL if torch.is_grad_enabled() else SMALL_WITHOUT_GRADIENT
    shapes_fit = weight.dim() == 2 and target.shape == input.shape[:-1]
    if not shapes_fit or target.dtype != torch.int64 or target.numel() * weight.numel() > limit:
        return None
    if type(ignore_index) not in (int, type(None)) or (classes is not None and classes.requires_grad):
        return None
    try:
        log_p = linear(input, weight, bias).log_softmax(-1).view(-1, weight.shape[0])
        if log_p.numel() and log_p.amax().item() > CONFIDENT:
            return None
        ignored = IGNORE_INDEX if ignore_index is None else ignore_index
        losses = nll_loss(log_p, target.view(-1), classes, ignore_index=ignored, reduction=reduction)
    except REFUSALS:  # said better by our own checks
        return None
    return losses.view(target.shape) if reduction == "none" else losses


def logits_of(
    input: Tensor, weight: Tensor, bias: Tensor | None, softcap: float, logit_scale: float
) -> Tensor:  # fmt: skip
    """Logits [N, *D, C] in float32, or float64, of `input` [N, H], `weight` [C, *D, H] and `bias` [C, *D]."""
    flat = linear(input, weight.reshape(-1, weight.shape[-1]))
    wide = flat.to(torch.promote_types(flat.dtype, torch.float32))
    z = bent(wide, None if bias is None else bias.reshape(-1), softcap, logit_scale)
    return z.view(*input.shape[:-1], *weight.shape[:-1]).movedim(input.dim() - 1, -1)


def losses_of(
    z: Tensor, target: Tensor, ignore_index: int, classes: Tensor | None, label_smoothing: float, z_loss: float
) -> Tensor:
    """The loss of every row of logits z [..., C], for class indices [...] or probabilities [..., C]."""
    lse = z.logsumexp(-1)
    log_p = z - lse[..., None]
    weighed = log_p if classes is None else log_p * classes
    if target.is_floating_point():
        found = -(weighed * target).sum(-1)
    else:
        own = torch.where(target == ignore_index, 0, target).long()
        found = -weighed.gather(-1, own[..., None])[..., 0]
    if label_smoothing:
        found = (1 - label_smoothing) * found - label_smoothing / z.shape[-1] * weighed.sum(-1)
    if z_loss:
        found = found + z_loss * lse.square()
    return found if target.is_floating_point() else torch.where(target == ignore_index, 0.0, found)


def warn(reason: str) -> None:
    """Say that all logits will be in memory at once."""
    warnings.warn(
        f"linear_cross_entropy: {reason}, so torch computes the loss, with all logits in memory at once", stacklevel=3
    )
