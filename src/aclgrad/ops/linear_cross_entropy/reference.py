"""The textbook: cross entropy of a linear layer over a whole vocabulary, and its gradient on one shard of it."""

from __future__ import annotations

import torch
from torch import Tensor


def linear_cross_entropy(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Loss [BT] of `input` [BT, H] against `target` [BT], with the `weight` [V, H] of the whole vocabulary."""
    logits = input @ weight.t()
    return torch.logsumexp(logits, dim=1) - logits.gather(1, target[:, None])[:, 0]


def linear_cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float,
    logits_max: Tensor | None,
    sum_exp_logits: Tensor | None,
    softmax: Tensor | None,
    *,
    rounding: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(input_grad [BT, H], weight_grad [V, H]); `rounding` is the half type that the probabilities pass through."""
    if label_smoothing != 0:
        raise ValueError("the formula is written for label_smoothing = 0")
    if softmax is not None:
        p = softmax.clone()
    else:
        assert logits_max is not None  # the contract
        assert sum_exp_logits is not None
        p = torch.exp(input @ weight.t() - logits_max[:, None]) / sum_exp_logits[:, None]
    token, row = owned_targets(target_mask, masked_target, rows=weight.shape[0])
    p[token, row] -= 1
    p *= grad[:, None]
    if rounding is not None:
        p = p.to(rounding)
    p = p.to(input.dtype)
    return p @ weight, p.t() @ input


def owned_targets(target_mask: Tensor, masked_target: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """(token, row) of every target inside this shard; what the mask hides or lies out of range is left out."""
    elsewhere = target_mask if target_mask.dtype == torch.bool else unpack_bits(target_mask)[: len(masked_target)]
    here = ~elsewhere & (masked_target >= 0) & (masked_target < rows)
    return here.nonzero()[:, 0], masked_target[here].long()


def unpack_bits(packed: Tensor) -> Tensor:
    """Bools from bytes, least significant bit first."""
    bits = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> bits) & 1).flatten().bool()
