"""The textbook of the operators for one shard: its columns of the matrix of all logits."""

from __future__ import annotations

import torch
from torch import Tensor

from .reference_training import logits_of, products_with
from .spec_shards import ELSEWHERE


def shard_statistics(
    input: Tensor,
    weight: Tensor,
    row: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    smooths: bool = False,
    wants_statistics: bool = False,
) -> Tensor:
    """What the shard finds of every token, [K, BT]; `spec_shards.Found` has the places."""
    if not weight.shape[0]:
        nothing = torch.zeros(3 + smooths + 2 * wants_statistics, len(row), dtype=input.dtype, device=input.device)
        nothing[0], nothing[2] = -torch.inf, ELSEWHERE
        return nothing
    z, _ = logits_of(input, weight, bias, softcap, logit_scale)
    here, own = _own(row, weight)
    top = z.amax(1)
    left = z - torch.where(top == -torch.inf, 0.0, top)[:, None]
    e = torch.exp(left)
    others = torch.where(here[:, None], e.scatter(1, own[:, None], 0.0), e).sum(1)
    mine = z.gather(1, own[:, None])[:, 0]
    found = [top, others, torch.where(here, mine - top, ELSEWHERE)]
    if smooths:
        found.append((left if class_weight is None else left * class_weight).sum(1))
    if wants_statistics:
        wins = here & (z.argmax(1) == own) & ~top.isnan()
        found += [torch.where(e > 0, e * left, e * 0).sum(1), wins.to(z.dtype)]
    return torch.stack(found)


def _own(row: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(whether the own target is in this shard, its row or 0), [BT] each."""
    here = (row >= 0) & (row < weight.shape[0])
    return here, torch.where(here, row, 0).long()


def shard_gradients(
    input: Tensor,
    weight: Tensor,
    row: Tensor,
    top: Tensor,
    total: Tensor,
    alpha: Tensor,
    own_slope: Tensor,
    beta: Tensor | None = None,
    delta: Tensor | None = None,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    softcap: float = 0.0,
    logit_scale: float = 1.0,
    wants_input_grad: bool = True,
    wants_weight_grad: bool = True,
    wants_bias_grad: bool = False,
    *,
    rounding: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(input_grad [BT, H], weight_grad [V, H], bias_grad [V]) of the shard, None for one that is not wanted.

    `rounding` is the half type that the slopes pass through.
    """
    z, inner = logits_of(input, weight, bias, softcap, logit_scale)
    left = z - top[:, None]
    p = torch.exp(left) / total[:, None]
    slopes = alpha[:, None] * p
    if beta is not None:
        slopes = slopes + beta[:, None] * torch.where(p > 0, left * p, 0.0)
    if delta is not None:
        slopes = slopes - delta[:, None] * (1.0 if class_weight is None else class_weight)
    slopes = slopes * inner
    here, own = _own(row, weight)
    if weight.shape[0]:
        slopes = torch.where(here[:, None], slopes.scatter(1, own[:, None], own_slope[:, None]), slopes)
    return products_with(slopes, input, weight, (wants_input_grad, wants_weight_grad, wants_bias_grad), rounding)
