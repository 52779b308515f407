"""The loss on a matrix of all logits, by torch's own operations: for what the operators do not take."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import linear

from .reference_training import bent


def logits_of(
    input: Tensor, weight: Tensor, bias: Tensor | None, softcap: float, logit_scale: float
) -> Tensor:  # fmt: skip
    """Logits [N, *D, C] in float32, or float64, of `input` [N, H], `weight` [C, *D, H] and `bias` [C, *D]."""
    flat = linear(input, weight.flatten(0, -2))
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
