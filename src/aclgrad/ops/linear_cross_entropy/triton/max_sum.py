"""Statistics of one shard of the vocabulary, on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import I64, Call
from aclgrad.gpu.launch import Kernel, jit

from ..cpu.statistics import Nothing
from .choose import ceil_div
from .products import Operand
from .statistics.compute import STRIP_COLUMNS, Statistics, Tiles

TOKENS = 256  # tokens whose targets a program looks at


@jit
def place_targets(  # type: ignore[no-untyped-def]
    target, own, mask, masked_target,
    tokens, vocabulary, start, end, target_stride, mask_stride, masked_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """Which tokens' targets lie in [start, end), as bits, and where; `own` is -1 for those that `vocabulary` lacks."""
    byte = tl.program_id(0).to(tl.int64) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    bit = tl.arange(0, 8)
    token = byte[:, None] * 8 + bit[None, :]
    inside = token < tokens
    wanted = tl.load(target + token * target_stride, inside, other=0).to(tl.int64)
    here = inside & (wanted >= start) & (wanted < end)
    row = tl.where(here, wanted - start, 0)
    tl.store(own + token, tl.where(here & (row < vocabulary), row, -1), inside)
    tl.store(masked_target + token * masked_stride, row.to(masked_target.dtype.element_ty), inside)
    bits = tl.sum(tl.where(here, 0, 1) << bit[None, :], 1)
    tl.store(mask + byte * mask_stride, bits.to(tl.uint8), byte * 8 < tokens)


class LinearOnlineMaxSum:
    """Phase two of `linear_online_max_sum`."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary, _ = call.dims
        scratch = Scratch()
        vectors = [call[name] for name in ("target", "target_mask", "masked_target")]
        self._own = scratch.tensor((tokens,), I64)
        self._place = Kernel(
            place_targets, (ceil_div(tokens, TOKENS),), call.device,
            [vectors[0].dtype, I64, *(meta.dtype for meta in vectors[1:])],
            [
                tokens, vocabulary, call["vocab_start_index"], call["vocab_end_index"],
                *(meta.strides[0] for meta in vectors),
            ],
            {"BLOCK": TOKENS},
        )  # fmt: skip
        self._x = Operand(call["input"], tokens, scratch)
        w = Operand(call["weight"], STRIP_COLUMNS, scratch)
        tiles = Tiles(tokens, vocabulary, scratch)
        self._statistics = Statistics(
            tokens, self._x, w, call["weight"], call["vocab_parallel_logits"], tiles, scratch
        )  # fmt: skip
        strides = [call[name].strides[0] for name in ("logits_max", "sum_exp_logits", "predicted_logits")]
        self._merge = tiles.merging(tokens, call["vocab_parallel_logits"], strides, call.device)
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        x, weight, target = args[:3]
        *results, mask, masked_target, logits = outs
        own = self._own.view(workspace)
        self._place(target, own, mask, masked_target)
        views = self._statistics(self._x(x, workspace), weight, logits, own, workspace)
        self._merge(own, *views, logits, *results)


def linear_online_max_sum(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    return LinearOnlineMaxSum(call) if call.dims.BT else Nothing()
