"""Batch norm over the ranks of a group: one collective forward, one backward.

Every rank sends the mean and the deviation of its part of the batch, and of how many values they are; backward, its two
sums. All of it in float32 (float64 of float64), whatever the dtype of the part and whether there is anything in it, so
that ranks never send different sizes. A part without values counts as none: there is no mask and nobody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.autograd import final
from ...core.collectives import Collective

ONCE = "the gradient of a batch norm over several processes cannot be differentiated again; within one process it can"

COUNT = 1 << 22
"""A count is sent as two numbers of this base: what one float32 holds ends at 2^24."""

GATHERED = 1 << 20
"""Bytes of the sums of all ranks up to which they are gathered and added up in float64, in the order of the ranks."""


class Statistics(NamedTuple):
    """Of the whole batch."""

    mean: Tensor  # [C]
    invstd: Tensor  # [C], with eps
    counts: Tensor  # [W]: how many values a channel has in each part


def packed(part: Tensor) -> Tensor:
    """What a rank sends of its part of the batch, [2C + 2]."""
    channels = part.shape[1]
    wide = torch.promote_types(part.dtype, torch.float32)
    if part.numel():
        mean, invstd = torch.ops.aclgrad.batch_norm_stats(part, 0.0)
    else:
        mean, invstd = (part.new_full((channels,), value, dtype=wide) for value in (0.0, 1.0))
    count = part.numel() // channels
    high, low = (mean.new_full((1,), number) for number in (count // COUNT, count % COUNT))
    return torch.cat([mean, invstd, high, low])


def unpacked(gathered: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(means [W, C], invstds [W, C], counts [W]) of what all ranks sent."""
    channels = gathered.shape[1] // 2 - 1
    mean, invstd = gathered[:, :channels], gathered[:, channels : 2 * channels]
    high, low = gathered[:, -2].long(), gathered[:, -1].long()
    return mean, invstd, high * COUNT + low


def gathered_statistics(collective: Collective, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The same of the parts of all ranks."""
    return unpacked(collective.gather("statistics of a batch", [packed(part) for part in parts]))


def normalised_over(
    collective: Collective, parts: Sequence[Tensor], weight: Tensor | None, bias: Tensor | None, of: Statistics
) -> list[Tensor]:
    """The parts of the batch of this process, normalised by statistics of all."""
    return list(_Synchronised.apply(collective, of, weight, bias, *parts))  # type: ignore[no-untyped-call]


class _Synchronised(torch.autograd.Function):
    """(part - mean) * invstd * weight + bias, differentiated with mean and invstd as functions of all parts."""

    @staticmethod
    def forward(ctx: Any, collective: Collective, of: Statistics, weight: Any, bias: Any, *parts: Tensor) -> Any:
        ctx.collective, ctx.count = collective, len(parts)
        ctx.save_for_backward(*of, weight, *parts)
        vectors = (weight, bias, of.mean, of.invstd, 0.0)  # eps is in invstd
        return tuple(torch.ops.aclgrad.batch_norm_elemt(part, *vectors) for part in parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = ctx.saved_tensors  # a checkpoint has them computed again, and gives each once
        with torch.no_grad():
            found = _gradients(ctx, saved, grads)
        _, _, _, *leaves = saved
        sources = [*grads, *(leaf for leaf in leaves if leaf is not None)]
        return None, None, *final(ONCE, found, *sources)


def _gradients(ctx: Any, saved: Sequence[Any], grads: Sequence[Tensor]) -> list[Tensor | None]:
    """Of weight, bias, and every part."""
    mean, invstd, counts, weight, *parts = saved
    _, _, wants_weight, wants_bias, *wants_parts = ctx.needs_input_grad
    wants = any(wants_parts)
    sums = [
        torch.ops.aclgrad.batch_norm_reduce_backward(grad, part, mean, invstd, weight, wants, wants_weight, wants_bias)
        for grad, part in zip(grads, parts, strict=True)
    ]
    found: list[Tensor | None] = [None] * len(parts)
    if wants:
        total = _summed(ctx.collective, [torch.cat(of[:2]) for of in sums])
        sum_dy, sum_dy_xmu = total.chunk(2)
        found = [
            torch.ops.aclgrad.batch_norm_elemt_backward(grad, part, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)
            for grad, part in zip(grads, parts, strict=True)
        ]
    grad_weight = grad_bias = None
    if wants_weight:
        each = [
            of[2] if part.numel() else torch.zeros_like(of[2])  # statistics of nothing are NaN
            for of, part in zip(sums, parts, strict=True)
        ]
        grad_weight = _added(each)
    if wants_bias:
        grad_bias = _added([of[3] for of in sums])
    return [grad_weight, grad_bias, *found]


def _added(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0) if len(parts) > 1 else parts[0]


def _summed(collective: Collective, sums: Sequence[Tensor]) -> Tensor:
    """[2C]: the sums over all ranks, the same bits on each."""
    what = "sums of a batch's gradient"
    if sums[0].numel() * sums[0].element_size() * collective.size <= GATHERED:
        return collective.gather(what, sums).double().sum(0).to(sums[0].dtype)
    return collective.start_sum(what, sums)()[0]
