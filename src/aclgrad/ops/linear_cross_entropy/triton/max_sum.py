"""Statistics of one shard of the vocabulary, on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from ..empty import Nothing
from .choose import BLOCK_TOKENS
from .options import LogitOptions
from .products import Factor, weight_factor
from .statistics.compute import Statistics
from .statistics.merge import merging
from .statistics.tiles import TileStatistics


@jit
def place_targets(
    target_ptr, own_ptr, target_mask_ptr, masked_target_ptr,
    tokens, vocabulary, start, end, target_stride, target_mask_stride, masked_target_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """Which tokens' targets lie in [start, end), as bits, and where; `own` is -1 for those that `vocabulary` lacks."""
    byte = tl.program_id(0).to(tl.int64) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    bit = tl.arange(0, 8)
    token = byte[:, None] * 8 + bit[None, :]
    inside = token < tokens
    wanted = tl.load(target_ptr + token * target_stride, inside, other=0).to(tl.int64)
    here = inside & (wanted >= start) & (wanted < end)
    row = tl.where(here, wanted - start, 0)
    tl.store(own_ptr + token, tl.where(here & (row < vocabulary), row, -1), inside)
    tl.store(masked_target_ptr + token * masked_target_stride, row.to(masked_target_ptr.dtype.element_ty), inside)
    bits = tl.sum(tl.where(here, 0, 1) << bit[None, :], 1)
    tl.store(target_mask_ptr + byte * target_mask_stride, bits.to(tl.uint8), byte * 8 < tokens)


class LinearOnlineMaxSum:
    """Phase two of `linear_online_max_sum`."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary, _ = call.dims
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        (target, *results), strides = vectors(call, "target", "target_mask", "masked_target")
        self._own = scratch.tensor((tokens,), I64)
        self._place = CallKernel(
            call, place_targets, (triton.cdiv(tokens, BLOCK_TOKENS),), [target, Operand.at("own", self._own), *results],
            {
                "tokens": tokens, "vocabulary": vocabulary,
                "start": call["vocab_start_index"], "end": call["vocab_end_index"], **strides,
            },
            {"BLOCK": BLOCK_TOKENS},
        )  # fmt: skip
        self._x = Factor(call["input"], tokens, scratch)
        w = weight_factor(call["weight"], tokens, scratch)
        tiles = TileStatistics(tokens, vocabulary, scratch, LogitOptions())
        logits = call["vocab_parallel_logits"]
        self._statistics = Statistics(tokens, self._x, w, call["weight"], logits, tiles, scratch)
        statistics = [call[name].strides[0] for name in ("logits_max", "sum_exp_logits", "predicted_logits")]
        self._merge = merging(tiles, tokens, logits, statistics, call.device)
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        logits, own = given["vocab_parallel_logits"], self._own.view(workspace)
        self._place(args, outs, workspace)
        tiles = self._statistics(self._x(given["input"], workspace), given["weight"], logits, own, {}, workspace)
        self._merge(
            {
                **tiles, "own": own, "logits": logits, "top": given["logits_max"], "total": given["sum_exp_logits"],
                "predicted": given["predicted_logits"],
            }
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


def linear_online_max_sum(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    return LinearOnlineMaxSum(call) if call.dims.BT else Nothing()
