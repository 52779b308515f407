"""What p needs to know of every token, gathered into gapless vectors: own target, gradient, statistics.

`own` is the token's own target, the row of the weight that it subtracts from, -1 if it has none here; `scale` is the
gradient of its loss; `top` and `total` are its largest logit and Σ exp(logit − largest); `own_p` is p at `own`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from ..training import STATISTICS
from .choose import BLOCK_TOKENS

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
def weigh_tokens(
    target_ptr, grad_ptr, logits_max_ptr, sum_exp_logits_ptr, sum_exp_others_ptr,
    own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr,
    tokens, vocabulary, ignored,
    target_stride, grad_stride, logits_max_stride, sum_exp_logits_stride, sum_exp_others_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same in training, where p of the own target is known, too; NaN if that is not in the vocabulary."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    row = tl.load(target_ptr + token * target_stride, inside, other=0).to(tl.int64)
    here = (row >= 0) & (row < vocabulary)
    weight = tl.load(grad_ptr + token * grad_stride, inside, other=0.0)
    weight = tl.where(row == ignored, 0.0, tl.where(here, weight, float("nan")))
    sums = tl.load(sum_exp_logits_ptr + token * sum_exp_logits_stride, inside, other=1.0)
    tl.store(own_ptr + token, tl.where(here, row, -1), inside)
    tl.store(scale_ptr + token, weight, inside)
    tl.store(top_ptr + token, tl.load(logits_max_ptr + token * logits_max_stride, inside), inside)
    tl.store(total_ptr + token, sums, inside)
    others = tl.load(sum_exp_others_ptr + token * sum_exp_others_stride, inside, other=0.0)
    tl.store(own_p_ptr + token, -(others / sums) * weight, inside)


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

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor) -> TokenVectors:
        """Own targets, gradients and, unless the softmax is given, maxima and sums."""
        self._gather(args, outs, workspace)
        return views(self._pieces, workspace)


class TrainingTokens:
    """The vectors of `token_gradients`, whose targets are rows of the weight."""

    __slots__ = ("_pieces", "_weigh")

    def __init__(self, call: Call, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        read, strides = vectors(call, "target", "grad", *STATISTICS)
        names = {"own": I64, **dict.fromkeys(("scale", "top", "total", "own_p"), F32)}
        self._pieces = {name: scratch.tensor((tokens,), dtype) for name, dtype in names.items()}
        self._weigh = CallKernel(
            call, weigh_tokens, (triton.cdiv(tokens, BLOCK_TOKENS),),
            [*read, *(Operand.at(name, piece) for name, piece in self._pieces.items())],
            {"tokens": tokens, "vocabulary": vocabulary, "ignored": call["ignore_index"], **strides},
            {"BLOCK": BLOCK_TOKENS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor) -> TokenVectors:
        """Own targets, gradients, maxima, sums, and p of the own targets."""
        self._weigh(args, outs, workspace)
        return views(self._pieces, workspace)


def views(pieces: Mapping[str, Piece], workspace: torch.Tensor) -> TokenVectors:
    """Pieces of the workspace as tensors, by name."""
    return {name: piece.view(workspace) for name, piece in pieces.items()}


def of_rows(tokens: TokenVectors, rows: slice) -> TokenVectors:
    """The vectors of some of the tokens."""
    return {name: vector[rows] for name, vector in tokens.items()}
