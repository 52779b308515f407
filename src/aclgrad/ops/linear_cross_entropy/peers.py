"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...testing.peers import CUDA, Peer, Prepared, compiled
from .reference import owned_targets


def eager_statistics(x: Tensor, w: Tensor, target: Tensor, start: int, end: int) -> Prepared:
    """All logits of the shard at once, then their maximum, sum and the targets' own."""

    def run() -> tuple[Tensor, Tensor, Tensor]:
        logits = (x @ w.t()).float()
        top, _ = logits.max(dim=1)
        shifted = logits.sub_(top[:, None])
        missing = (target < start) | (target >= end)
        row = torch.where(missing, 0, target - start)
        predicted = torch.where(missing, 0.0, shifted.gather(1, row[:, None].long()).squeeze(1))
        return top, shifted.exp_().sum(dim=1), predicted

    return run


def eager_loss(top: Tensor, total: Tensor, predicted: Tensor, *rest: Any) -> Prepared:
    """The formula line by line."""
    *_, logits = rest

    def run() -> tuple[Tensor, ...]:
        loss = total.log() - predicted
        return (loss,) if logits is None else (loss, (logits.float() - top[:, None]).exp_().div_(total[:, None]))

    return run


def eager_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float,  # noqa: ARG001  0 by contract
    logits_max: Tensor | None,
    sum_exp_logits: Tensor | None,
    softmax: Tensor | None,
) -> Prepared:
    """The whole probability matrix at once: products in the input's dtype, softmax in float32, in place if possible."""

    def run() -> tuple[Tensor, Tensor]:
        if logits_max is not None and sum_exp_logits is not None:
            p = (x @ w.t()).float().sub_(logits_max[:, None]).exp_().div_(sum_exp_logits[:, None])
        elif softmax is not None:
            p = softmax.clone()
        token, row = owned_targets(target_mask, masked_target, w.shape[0])
        p[token, row] -= 1
        p = p.mul_(grad[:, None]).to(x.dtype)
        return p @ w, p.t() @ x

    return run


PEERS: dict[str, tuple[Peer, ...]] = {
    "linear_online_max_sum": (Peer("eager torch", eager_statistics),),
    "cross_entropy_with_max_sum": (Peer("eager torch", eager_loss),),
    "linear_cross_entropy_backward": (
        Peer("eager torch", eager_backward),
        Peer("torch.compile", compiled(eager_backward), devices=CUDA, compiles=True),
    ),
}
