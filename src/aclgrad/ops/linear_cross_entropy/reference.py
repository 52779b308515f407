"""The textbook: cross entropy of a linear layer over a whole vocabulary, and each step of it on one shard."""

from __future__ import annotations

import torch
from torch import Tensor

from .reference_shards import shard_gradients as shard_gradients
from .reference_shards import shard_statistics as shard_statistics
from .reference_training import loss_and_gradients as loss_and_gradients
from .reference_training import token_gradients as token_gradients
from .reference_training import token_losses as token_losses


def linear_cross_entropy(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Loss [BT] of `input` [BT, H] against `target` [BT], with the `weight` [V, H] of the whole vocabulary."""
    logits = input @ weight.t()
    return torch.logsumexp(logits, dim=1) - logits.gather(1, target[:, None])[:, 0]


def linear_online_max_sum(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    *,
    rounding: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(largest logit, Σ exp(logit − largest), target's logit − largest, mask, local target, logits) of a shard.

    `rounding` is the half type that the logits pass through.
    """
    logits = input @ weight.t()
    if rounding is not None:
        logits = logits.to(rounding)
    wide = logits.to(torch.promote_types(input.dtype, torch.float32))
    logits_max = wide.amax(1)
    sum_exp_logits = torch.exp(wide - logits_max[:, None]).sum(1)
    elsewhere = (target < vocab_start_index) | (target >= vocab_end_index)
    masked_target = torch.where(elsewhere, 0, target - vocab_start_index)
    predicted = torch.zeros_like(logits_max)
    token, row = owned_targets(elsewhere, masked_target, rows=weight.shape[0])
    predicted[token] = wide[token, row] - logits_max[token]
    return logits_max, sum_exp_logits, predicted, pack_bits(elsewhere), masked_target.to(target.dtype), logits


def cross_entropy_with_max_sum(
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    predicted_logits: Tensor,
    label_smoothing: float = 0.0,
    input: Tensor | None = None,  # noqa: ARG001  the contract has it, the formula does not
    weight: Tensor | None = None,  # noqa: ARG001
    vocab_parallel_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(loss [BT], softmax [BT, V] or None) from the statistics of the whole vocabulary."""
    if label_smoothing != 0:
        raise ValueError("the formula is written for label_smoothing = 0")
    loss = torch.log(sum_exp_logits) - predicted_logits
    if vocab_parallel_logits is None:
        return loss, None
    shifted = vocab_parallel_logits.to(logits_max.dtype) - logits_max[:, None]
    return loss, torch.exp(shifted) * (1 / sum_exp_logits)[:, None]


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


def scale_(x: Tensor, factor: Tensor) -> Tensor:
    """The new value of x."""
    return x * factor


def owned_targets(target_mask: Tensor, masked_target: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """(token, row) of every target inside this shard; what the mask hides or lies out of range is left out."""
    elsewhere = target_mask if target_mask.dtype == torch.bool else unpack_bits(target_mask)[: len(masked_target)]
    here = ~elsewhere & (masked_target >= 0) & (masked_target < rows)
    return here.nonzero()[:, 0], masked_target[here].long()


def unpack_bits(packed: Tensor) -> Tensor:
    """Bools from bytes, least significant bit first."""
    bits = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> bits) & 1).flatten().bool()


def pack_bits(flags: Tensor) -> Tensor:
    """Eight flags a byte, least significant bit first; spare bits are 1."""
    padded = torch.ones(-(-len(flags) // 8) * 8, dtype=torch.int64, device=flags.device)
    padded[: len(flags)] = flags
    return (padded.view(-1, 8) << torch.arange(8, device=flags.device)).sum(1).to(torch.uint8)
