"""Every token's statistics from those of its tiles, and in training its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton.language as tl

from aclgrad.core.meta import Meta
from aclgrad.core.spec import BOOL, F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.products import TILE

from ..maths import exponential, largest, log_sum, product_or_zero
from ..tokens import slopes
from .tiles import TileStatistics


@jit
def merged(maxima_ptr, sums_ptr, count, BLOCK: tl.constexpr):
    """(largest logit, Σ exp(logit − largest)) of a token from those of its tiles; these, and the weights of their Σ."""
    tile = tl.arange(0, BLOCK)
    inside = tile < count
    tops = tl.load(maxima_ptr + tile, inside, other=float("-inf"))
    totals = tl.load(sums_ptr + tile, inside, other=0.0)
    top = largest(tops)
    powers = exponential(tops - top, True)
    return top, tl.sum(totals * powers, 0), tops, totals, powers


@jit
def merge_statistics(
    own_ptr, maxima_ptr, sums_ptr, chosen_ptr, logits_ptr, top_ptr, total_ptr, predicted_ptr,
    count, logits_row, logits_column, top_stride, total_stride, predicted_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics, and its own target's logit less the largest, or 0.

    That logit is among the `chosen`, unless all logits are there.
    """
    token = tl.program_id(0).to(tl.int64)
    top, total, _, _, _ = merged(maxima_ptr + token * count, sums_ptr + token * count, count, BLOCK)
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
    target_ptr, own_ptr, scale_ptr, classes_ptr, totals_ptr,
    maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr,
    own_p_ptr, delta_ptr, top_ptr, total_ptr, others_ptr, loss_ptr,
    predicted_ptr, logprob_ptr, entropy_ptr, lse_ptr, correct_ptr,
    count, vocabulary, ignored, smoothing, spread, z_loss, cap, logit_scale,
    target_stride, top_stride, total_stride, others_stride, loss_stride,
    predicted_stride, logprob_stride, entropy_stride, lse_stride, correct_stride,
    REWEIGHS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One token's statistics and loss from those of its tiles, which left out its own target; p of that, if wanted.

    If it `REWEIGHS`, the gradient of the loss in `scale` is replaced by the factor of p. Without `ahead`, an own target
    that is as large as the largest is `correct`, until p is made.
    """
    token = tl.program_id(0).to(tl.int64)
    top, rest, tops, sums, powers = merged(maxima_ptr + token * count, sums_ptr + token * count, count, BLOCK)
    row = tl.load(own_ptr + token)
    here = row >= 0
    counts = tl.load(target_ptr + token * target_stride).to(tl.int64) != ignored
    chosen = tl.load(chosen_ptr + token, here, other=0.0)
    predicted = tl.where(here, chosen - top, 0.0)
    mine = exponential(predicted, True)
    total = tl.where(here, rest + mine, rest)
    log_total = log_sum(rest, total, here)
    nll = tl.where(counts, tl.where(here, log_total - predicted, float("nan")), 0.0)
    tile = tl.arange(0, BLOCK)
    all_classes = vocabulary * 1.0
    own_class = None
    each = nll
    if classes_ptr is not None:
        own_class = tl.load(classes_ptr + row, here, other=0.0)
        each = each * own_class
    if smoothing is not None:
        of_tiles = tl.maximum(tl.minimum(vocabulary - tile * WIDTH, WIDTH), 0).to(tl.float32)
        if totals_ptr is not None:
            of_tiles = tl.load(totals_ptr + tile, tile < count, other=0.0)
            all_classes = tl.sum(of_tiles, 0)
        classed = tl.load(classed_ptr + token * count + tile, tile < count, other=0.0)
        classed = tl.sum(tl.where(tile < count, classed + of_tiles * (tops - top), 0.0), 0)
        each = each * (1.0 - smoothing) + spread * (all_classes * log_total - classed)
    if z_loss is not None:
        each += z_loss * (top + log_total) * (top + log_total)
    tl.store(loss_ptr + token * loss_stride, tl.where(counts, each, 0.0))
    tl.store(top_ptr + token * top_stride, top)
    tl.store(total_ptr + token * total_stride, total)
    if others_ptr is not None:
        tl.store(others_ptr + token * others_stride, rest)
    if predicted_ptr is not None:
        tl.store(predicted_ptr + token * predicted_stride, predicted)
    if mixed_ptr is not None:
        mixed = tl.load(mixed_ptr + token * count + tile, tile < count, other=0.0)
        mixed = tl.sum(powers * mixed + sums * product_or_zero(powers, tops - top), 0)
        tl.store(entropy_ptr + token * entropy_stride, log_total - (mixed + product_or_zero(mine, predicted)) / total)
        tl.store(logprob_ptr + token * logprob_stride, -nll)
        tl.store(lse_ptr + token * lse_stride, top + log_total)
        correct = counts & here & (chosen == top)
        if ahead_ptr is not None:
            ahead = tl.load(ahead_ptr + token, here, other=-1)
            before = tl.max(((tile < ahead) & (tops >= top)).to(tl.int32), 0)
            correct = correct & (ahead >= 0) & (before == 0)
        tl.store(correct_ptr + token * correct_stride, correct)
    if scale_ptr is not None:
        alpha, _, delta, own_p = slopes(
            here, tl.load(scale_ptr + token), None, None, None, top, total, rest, predicted, None, own_class,
            all_classes, smoothing, spread, z_loss, cap, logit_scale,
        )  # fmt: skip
        tl.store(own_p_ptr + token, own_p)
        if delta_ptr is not None:
            tl.store(delta_ptr + token, delta)
        if REWEIGHS:
            tl.store(scale_ptr + token, alpha)


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
        {"BLOCK": tiles.block}, unknown=True,
    )  # fmt: skip


RESULTS = ("top", "total", "others", "loss", "predicted", "logprob", "entropy", "lse", "correct")
"""What `merge_for_training` can find of a token."""


def merging_for_training(
    call: Call, tiles: TileStatistics, tokens: int, strides: Mapping[str, int], *, weighs: bool
) -> NamedKernel:
    """A kernel of `merge_for_training`; the strides are those of what is wanted of `RESULTS`.

    If it `weighs`, it also finds what p needs to know of a token.
    """
    options, vocabulary = tiles.options, call.dims.V
    of_tiles = ("maxima", "sums", "chosen", "classed", "mixed", "ahead")
    weights, classes = F32 if weighs else None, F32 if options.classes else None
    return NamedKernel(
        merge_for_training, (tokens,), call.device,
        (
            Operand.of(call, "target"), Operand("own", I64), Operand("scale", weights),
            Operand("classes", classes), Operand("totals", classes if options.smoothing else None),
            *(Operand(name, tiles.dtype(name)) for name in of_tiles),
            Operand("own_p", weights), Operand("delta", weights if options.smoothing else None),
            *(Operand(name, (BOOL if name == "correct" else F32) if name in strides else None) for name in RESULTS),
        ),
        {
            "count": tiles.count, "vocabulary": vocabulary, "ignored": call["ignore_index"],
            **options.loss_numbers(vocabulary), "target_stride": call["target"].strides[0],
            **{f"{name}_stride": strides.get(name, 0) for name in RESULTS},
        },
        {"REWEIGHS": options.changes_weights, "BLOCK": tiles.block, "WIDTH": TILE[1]}, unknown=True,
    )  # fmt: skip
