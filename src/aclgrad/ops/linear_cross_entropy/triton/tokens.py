"""What p needs to know of every token, gathered into gapless vectors: own target, gradient, statistics.

`own` is the token's own target, the row of the weight that it subtracts from, -1 if it has none here; `scale` is the
gradient of its loss; `top` and `total` are its largest logit and Σ exp(logit − largest); `own_p` is p at `own`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors
from aclgrad.gpu.products import TILE

from ..training import STATISTICS
from .choose import BLOCK_TOKENS
from .columns import Columns, ColumnVectors
from .maths import cap_slope, exponential, log_sum, product_or_zero
from .options import LogitOptions

TokenVectors = dict[str, torch.Tensor]
"""The vectors that there are, by name; all of them [BT], or the part of them that a chunk's tokens have."""


@jit
def gather_tokens(
    target_mask_ptr, masked_target_ptr, grad_ptr, logits_max_ptr, sum_exp_logits_ptr,
    own_ptr, scale_ptr, top_ptr, total_ptr,
    tokens, vocabulary,
    target_mask_stride, masked_target_stride, grad_stride, logits_max_stride, sum_exp_logits_stride,
    BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every token's own target (-1 if it lies elsewhere), gradient and statistics."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    elsewhere = tl.load(target_mask_ptr + (token >> BITS) * target_mask_stride, inside, other=1).to(tl.int32)
    elsewhere = (elsewhere >> (token & ((1 << BITS) - 1)).to(tl.int32)) & 1
    row = tl.load(masked_target_ptr + token * masked_target_stride, inside, other=-1).to(tl.int64)
    here = (elsewhere == 0) & (row >= 0) & (row < vocabulary)
    tl.store(own_ptr + token, tl.where(here, row, -1), inside)
    tl.store(scale_ptr + token, tl.load(grad_ptr + token * grad_stride, inside), inside)
    if logits_max_ptr is not None:
        tl.store(top_ptr + token, tl.load(logits_max_ptr + token * logits_max_stride, inside), inside)
        tl.store(total_ptr + token, tl.load(sum_exp_logits_ptr + token * sum_exp_logits_stride, inside), inside)


@jit
def slopes(
    here, of_loss, of_logprob, of_entropy, of_lse, top, total, others, predicted, entropy, own_class, all_classes,
    smoothing, spread, z_loss, cap, logit_scale,
):  # fmt: skip
    """(alpha, beta, delta, own_p) of tokens, for the gradients of their results; what is None does not count.

    With x = logit − largest, p of a column is

        ((alpha + beta · x) · exp(x) / total − delta · class weight) · ∂logit/∂(logit without softcap)

    and own_p at the own target, where the most of that would cancel.
    """
    of_nll = of_loss
    if smoothing is not None:
        of_nll = of_nll * (1.0 - smoothing)
    if own_class is not None:
        of_nll = of_nll * own_class
    if of_logprob is not None:
        of_nll = of_nll - of_logprob
    beta, delta, rest = of_nll * 0.0, of_nll * 0.0, of_nll * 0.0
    log_total = log_sum(others, total, here)
    if spread is not None:
        delta = of_loss * spread
        rest = delta * all_classes
    if z_loss is not None:
        rest = rest + 2.0 * z_loss * (top + log_total) * of_loss
    if of_lse is not None:
        rest = rest + of_lse
    if of_entropy is not None:
        rest = rest + of_entropy * (log_total - entropy)
        beta = -of_entropy
    alpha, own_p = of_nll, -(others / total) * of_nll
    if spread is not None or z_loss is not None or of_lse is not None or of_entropy is not None:
        alpha = of_nll + rest
        mine = exponential(predicted, True)
        own_p += rest * (mine / total)
        if of_entropy is not None:
            own_p += beta * (product_or_zero(mine, predicted) / total)
    if spread is not None:
        own_p -= delta * own_class if own_class is not None else delta
    if cap is not None:
        own_p *= cap_slope(predicted + top, cap)
    if logit_scale is not None:
        alpha, beta, delta, own_p = alpha * logit_scale, beta * logit_scale, delta * logit_scale, own_p * logit_scale
    return alpha, beta, delta, own_p


@jit
def weigh_tokens(
    target_ptr, grad_ptr, logits_max_ptr, sum_exp_logits_ptr, sum_exp_others_ptr, predicted_logits_ptr, entropy_ptr,
    logprob_grad_ptr, entropy_grad_ptr, lse_grad_ptr, classes_ptr, totals_ptr,
    own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr,
    tokens, vocabulary, ignored, tiles, smoothing, spread, z_loss, cap, logit_scale,
    target_stride, grad_stride, logits_max_stride, sum_exp_logits_stride, sum_exp_others_stride,
    predicted_logits_stride, entropy_stride, logprob_grad_stride, entropy_grad_stride, lse_grad_stride,
    BLOCK: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The same in training, where p of the own target is known, too; NaN if that is not in the vocabulary."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    row = tl.load(target_ptr + token * target_stride, inside, other=0).to(tl.int64)
    here = (row >= 0) & (row < vocabulary)
    weight = tl.load(grad_ptr + token * grad_stride, inside, other=0.0)
    weight = tl.where(row == ignored, 0.0, tl.where(here, weight, float("nan")))
    of_logprob, of_entropy, of_lse, predicted, entropy, own_class = None, None, None, None, None, None
    if logprob_grad_ptr is not None:
        of_logprob = tl.load(logprob_grad_ptr + token * logprob_grad_stride, inside, other=0.0)
        of_logprob = tl.where(row == ignored, 0.0, of_logprob)
    if entropy_grad_ptr is not None:
        of_entropy = tl.load(entropy_grad_ptr + token * entropy_grad_stride, inside, other=0.0)
        entropy = tl.load(entropy_ptr + token * entropy_stride, inside, other=0.0)
    if lse_grad_ptr is not None:
        of_lse = tl.load(lse_grad_ptr + token * lse_grad_stride, inside, other=0.0)
    if predicted_logits_ptr is not None:
        predicted = tl.load(predicted_logits_ptr + token * predicted_logits_stride, inside, other=0.0)
    if classes_ptr is not None:
        own_class = tl.load(classes_ptr + row, inside & here, other=0.0)
    all_classes = vocabulary * 1.0
    if totals_ptr is not None:
        tile = tl.arange(0, TILES)
        all_classes = tl.sum(tl.load(totals_ptr + tile, tile < tiles, other=0.0), 0)
    sums = tl.load(sum_exp_logits_ptr + token * sum_exp_logits_stride, inside, other=1.0)
    top = tl.load(logits_max_ptr + token * logits_max_stride, inside, other=0.0)
    others = tl.load(sum_exp_others_ptr + token * sum_exp_others_stride, inside, other=0.0)
    alpha, beta, delta, own_p = slopes(
        here, weight, of_logprob, of_entropy, of_lse, top, sums, others, predicted, entropy, own_class, all_classes,
        smoothing, spread, z_loss, cap, logit_scale,
    )  # fmt: skip
    tl.store(own_ptr + token, tl.where(here, row, -1), inside)
    tl.store(scale_ptr + token, alpha, inside)
    tl.store(top_ptr + token, top, inside)
    tl.store(total_ptr + token, sums, inside)
    tl.store(own_p_ptr + token, own_p, inside)
    if beta_ptr is not None:
        tl.store(beta_ptr + token, beta, inside)
    if delta_ptr is not None:
        tl.store(delta_ptr + token, delta, inside)


class Tokens:
    """The vectors of `linear_cross_entropy_backward`; no statistics if the softmax is given."""

    __slots__ = ("_gather", "_pieces")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        given = ("target_mask", "masked_target", "grad")
        statistics = ("logits_max", "sum_exp_logits")
        recomputes = call["softmax"] is None
        read, strides = vectors(call, *given, *statistics, left_out=() if recomputes else statistics)
        names = {"own": I64, "scale": F32, **({"top": F32, "total": F32} if recomputes else {})}
        self._pieces = {name: scratch.tensor((tokens,), dtype) for name, dtype in names.items()}
        self._gather = CallKernel(
            call, gather_tokens, (triton.cdiv(tokens, BLOCK_TOKENS),),
            [*read, *(Operand.at(name, self._pieces.get(name)) for name in ("own", "scale", "top", "total"))],
            {"tokens": tokens, "vocabulary": vocabulary, **strides},
            {"BITS": 0 if call["target_mask"].dtype == torch.bool else 3, "BLOCK": BLOCK_TOKENS},
        )  # fmt: skip

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[TokenVectors, ColumnVectors]:
        """Own targets, gradients and, unless the softmax is given, maxima and sums; nothing of columns."""
        self._gather(args, outs, workspace)
        return views(self._pieces, workspace), {}


class TrainingTokens:
    """The vectors of `token_gradients`, whose targets are rows of the weight."""

    __slots__ = ("_columns", "_pieces", "_weigh")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        options = LogitOptions.of(call)
        self._columns = Columns(call, options, scratch)
        beside = ("predicted_logits", "entropy", "logprob_grad", "entropy_grad", "lse_grad")
        read, strides = vectors(call, "target", "grad", *STATISTICS, *beside)
        needed = {"beta": call["entropy_grad"] is not None, "delta": options.smoothing > 0}
        names = ("scale", "top", "total", "own_p", *(name for name, is_needed in needed.items() if is_needed))
        self._pieces = {name: scratch.tensor((tokens,), dtype) for name, dtype in (("own", I64), *_floats(names))}
        made = ("own", "scale", "top", "total", "own_p", "beta", "delta")
        tiles = triton.cdiv(vocabulary, TILE[1])
        self._weigh = CallKernel(
            call, weigh_tokens, (triton.cdiv(tokens, BLOCK_TOKENS),),
            [
                *read, *(Operand.at(name, self._columns.pieces.get(name)) for name in ("classes", "totals")),
                *(Operand.at(name, self._pieces.get(name)) for name in made),
            ],
            {
                "tokens": tokens, "vocabulary": vocabulary, "ignored": call["ignore_index"], "tiles": tiles,
                **options.loss_numbers(vocabulary), **strides,
            },
            {"BLOCK": BLOCK_TOKENS, "TILES": triton.next_power_of_2(tiles)},
        )  # fmt: skip

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor
    ) -> tuple[TokenVectors, ColumnVectors]:
        """Own targets, gradients, maxima, sums, and p of the own targets; what there is of columns."""
        columns = self._columns(args, outs, workspace)
        self._weigh(args, outs, workspace)
        return views(self._pieces, workspace), columns


def _floats(names: Iterable[str]) -> list[tuple[str, torch.dtype]]:
    return [(name, F32) for name in names]


def views(pieces: Mapping[str, Piece], workspace: torch.Tensor) -> TokenVectors:
    """Pieces of the workspace as tensors, by name."""
    return {name: piece.view(workspace) for name, piece in pieces.items()}


def of_rows(tokens: TokenVectors, rows: slice) -> TokenVectors:
    """The vectors of some of the tokens."""
    return {name: vector[rows] for name, vector in tokens.items()}
