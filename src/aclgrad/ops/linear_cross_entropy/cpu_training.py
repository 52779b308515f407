"""Loss and both gradients of a whole vocabulary on the CPU: three products, in the memory of one and a half.

The statistics come first. The logits they are made of are kept where weight_grad will be: each block of its rows has
room for H tokens' logits of that block, and is written when these have been used. Tokens beyond H have theirs computed
again, and so have all if weight_grad is not wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.memory import Scratch
from ...core.meta import Meta, Value
from ...core.spec import F32, U8, Call
from ...cpu import threads as teams
from ...cpu.gemm import gemm_for
from . import spec, spec_forward
from .cpu_gradient import Gradient
from .cpu_plan import BLOCK_PARTS, Plan, make_plan
from .cpu_statistics import OnlineMaxSum
from .cpu_statistics_plan import Kept
from .empty import NoTokens, Zeros


def _share_and_add(
    _thread: int, _threads: int, target: Any, sum_exp: Any, predicted: Any, share: Any, loss: Any,
    tokens: int, vocabulary: int, ignored: int, stride: int, mean: int,
) -> None:  # fmt: skip
    """What each token's loss counts, and the sum or the mean of them all."""
    count = 0
    for token in range(tokens):
        count += target[token * stride] != ignored
    weight = 1.0 / count if mean else 1.0
    total = 0.0
    for token in range(tokens):
        row = target[token * stride]
        counts = row != ignored
        share[token] = weight if counts else 0.0
        if counts:
            total += math.log(sum_exp[token]) - predicted[token] if 0 <= row < vocabulary else math.nan
    loss[0] = total / count if mean else total


def _kept(gradient: Call, plan: Plan) -> Kept:
    """Whole strips of tokens, as many as weight_grad has room for, in the blocks in which it is computed."""
    if gradient["weight_grad"] is None:
        return Kept(0)
    strip = 2 * plan.height
    kept = plan.tokens if plan.tokens <= plan.features else plan.features // strip * strip
    return Kept(kept, block=plan.block_columns, pitch=plan.features)


class LossAndGradients:
    """Phase two of `loss_and_gradients`. The matrices are contiguous."""

    def __init__(self, call: Call) -> None:
        tokens, features, vocabulary = call.dims
        target, dtype = call["target"], call["input"].dtype
        wide = torch.promote_types(dtype, F32)
        scratch = Scratch()
        self._vectors = {
            "logits_max": scratch.tensor((tokens,), wide),
            "sum_exp_logits": scratch.tensor((tokens,), wide),
            "predicted_logits": scratch.tensor((tokens,), wide),
            "target_mask": scratch.tensor((-(-tokens // 8),), U8),
            "masked_target": scratch.tensor((tokens,), target.dtype),
            "grad": scratch.tensor((tokens,), wide),
        }
        known: dict[str, Value] = {
            name: Meta(piece.shape, (1,), piece.dtype, call.device) for name, piece in self._vectors.items()
        }
        known |= {name: call[name] for name in ("input", "weight", "target", "input_grad", "weight_grad")}
        known |= {"vocab_start_index": 0, "vocab_end_index": vocabulary, "label_smoothing": 0.0}
        statistics = Call(spec_forward.linear_online_max_sum.spec, known, strict=False)
        gradient = Call(spec.linear_cross_entropy_backward.spec, known, strict=False)
        gemm = gemm_for(dtype)
        parts = BLOCK_PARTS if gemm.operand.unit == 2 * gemm.operand.depth else 1  # wider elements, narrower blocks
        kept = _kept(gradient, make_plan(gradient, gemm, threads=1, parts=parts))
        self._measure = OnlineMaxSum(statistics, kept)
        self._keeps = kept.tokens > 0
        self._differentiate: Launch = Gradient(gradient, kept.tokens, parts) if features else Zeros()
        self._room = scratch.tensor((max(self._measure.workspace, self._differentiate.workspace),), U8)
        self.workspace = scratch.size
        self._numbers = (tokens, vocabulary, call["ignore_index"], target.strides[0], int(call["mean"]))
        signature = (target.dtype, wide, wide, wide, call["loss"].dtype, *(int for _ in self._numbers))
        self._add = teams.compile(_share_and_add, signature)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every token has a place there
        x, weight, target = args[:3]
        loss, *gradients = outs
        top, total, predicted, mask, row, share = (piece.view(workspace) for piece in self._vectors.values())
        room = self._room.view(workspace)
        kept = gradients[1] if self._keeps else None
        self._measure((x, weight, target), (top, total, predicted, mask, row, kept), room)
        self._add(1, *(each.data_ptr() for each in (target, total, predicted, share, loss)), *self._numbers)
        self._differentiate((share, x, weight, mask, row, 0.0, top, total, None), gradients, room)


def loss_and_gradients(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return LossAndGradients(call) if call.dims.BT else NoTokens(call)
