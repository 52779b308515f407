"""Every token's statistics from those of its tiles, and in training its loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32, I64
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import NamedKernel, Operand

from ..maths import exponential, largest, log1p
from .tiles import TileStatistics


@jit
def merged(maxima_ptr, sums_ptr, count, BLOCK: tl.constexpr):
    """(largest logit, Σ exp(logit − largest)) of a token from those of its tiles."""
    tile = tl.arange(0, BLOCK)
    inside = tile < count
    tops = tl.load(maxima_ptr + tile, inside, other=float("-inf"))
    totals = tl.load(sums_ptr + tile, inside, other=0.0)
    top = largest(tops)
    return top, tl.sum(totals * exponential(tops - top, True), 0)


@jit
def merge_statistics(
    own_ptr, maxima_ptr, sums_ptr, chosen_ptr, logits_ptr, top_ptr, total_ptr, predicted_ptr,
    count, logits_row, logits_column, top_stride, total_stride, predicted_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics, and its own target's logit less the largest, or 0.

    That logit is among the `chosen`, unless all logits are there.
    """
    token = tl.program_id(0).to(tl.int64)
    top, total = merged(maxima_ptr + token * count, sums_ptr + token * count, count, BLOCK)
    row = tl.load(own_ptr + token)
    here = row >= 0
    if logits_ptr is not None:
        logit = tl.load(logits_ptr + token * logits_row + tl.where(here, row, 0) * logits_column).to(tl.float32)
    else:
        logit = tl.load(chosen_ptr + token, here, other=0.0)
    tl.store(top_ptr + token * top_stride, top)
    tl.store(total_ptr + token * total_stride, total)
    tl.store(predicted_ptr + token * predicted_stride, tl.where(here, logit - top, 0.0))


@jit
def merge_for_training(
    own_ptr, scale_ptr, maxima_ptr, sums_ptr, chosen_ptr, top_ptr, total_ptr, others_ptr, loss_ptr, own_p_ptr,
    count, top_stride, total_stride, others_stride, loss_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics and loss from those of its tiles, which left out its own target; p of that, if wanted.

    The loss log Σ exp(logit − largest) − predicted is that of the sum less 1: what the others add up to, if the own
    target is the largest.
    """
    token = tl.program_id(0).to(tl.int64)
    top, rest = merged(maxima_ptr + token * count, sums_ptr + token * count, count, BLOCK)
    here = tl.load(own_ptr + token) >= 0
    predicted = tl.where(here, tl.load(chosen_ptr + token, here, other=0.0) - top, 0.0)
    mine = exponential(predicted, True)
    total = tl.where(here, rest + mine, rest)
    weight = tl.load(scale_ptr + token)
    each = log1p(rest + tl.where(predicted == 0.0, 0.0, mine - 1.0)) - predicted
    tl.store(loss_ptr + token * loss_stride, tl.where(weight == 0.0, 0.0, tl.where(here, each, float("nan"))))
    tl.store(top_ptr + token * top_stride, top)
    tl.store(total_ptr + token * total_stride, total)
    if others_ptr is not None:
        tl.store(others_ptr + token * others_stride, rest)
    if own_p_ptr is not None:
        tl.store(own_p_ptr + token, -(rest / total) * weight)


def merging(
    tiles: TileStatistics, tokens: int, logits: Meta | None, strides: Sequence[int], device: torch.device
) -> NamedKernel:
    """A kernel of `merge_statistics`; the strides are those of top, total and predicted."""
    rows, columns = logits.strides if logits else (0, 0)
    return NamedKernel(
        merge_statistics, (tokens,), device,
        (
            Operand("own", I64), *(Operand(name, F32) for name in ("maxima", "sums", "chosen")),
            Operand("logits", logits and logits.dtype),
            *(Operand(name, F32) for name in ("top", "total", "predicted")),
        ),
        {
            "count": tiles.count, "logits_row": rows, "logits_column": columns,
            "top_stride": strides[0], "total_stride": strides[1], "predicted_stride": strides[2],
        },
        {"BLOCK": tiles.block},
    )  # fmt: skip


def merging_for_training(
    tiles: TileStatistics, tokens: int, strides: Sequence[int], device: torch.device, *, others: bool
) -> NamedKernel:
    """A kernel of `merge_for_training`; the strides are those of top, total, others and loss.

    It leaves sums over the others, or p of the own targets instead.
    """
    names = ("scale", "maxima", "sums", "chosen", "top", "total")
    return NamedKernel(
        merge_for_training, (tokens,), device,
        (
            Operand("own", I64), *(Operand(name, F32) for name in names), Operand("others", F32 if others else None),
            Operand("loss", F32), Operand("own_p", None if others else F32),
        ),
        {
            "count": tiles.count, "top_stride": strides[0], "total_stride": strides[1],
            "others_stride": strides[2], "loss_stride": strides[3],
        },
        {"BLOCK": tiles.block},
    )  # fmt: skip
