"""Loss and both gradients of a whole vocabulary in one pass, on GPUs: three products in all, in bounded memory.

Logits are made with their statistics (`triton_statistics`). When these are complete, the logits are turned into
p = (softmax − one-hot) · scale and used up by two products of the library. `triton_phases` says where and how they wait
for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, I64, U8, Call
from aclgrad.gpu.launch import Kernel, jit

from ...cpu.statistics import Nothing
from ...empty import NoTokens
from ...training import STATISTICS
from ..choose import MIB
from ..products import Operand
from ..statistics.compute import STRIP_COLUMNS, Statistics, Tiles
from .kept_logits import Borrowed, InTurn, borrowable, merging

BUDGET = 256 * MIB  # of the workspace
TOKENS = 1024  # that the one program which looks at all of them takes at a time


@jit
def counted(target, tokens, ignored, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many tokens have a target that is not to be ignored."""
    count = tl.zeros((BLOCK,), tl.int32)
    start = 0
    while start < tokens:
        token = start + tl.arange(0, BLOCK)
        row = tl.load(target + token.to(tl.int64) * stride, token < tokens, other=ignored)
        count += (row.to(tl.int64) != ignored).to(tl.int32)
        start += BLOCK
    return tl.sum(count, 0)


@jit
def share_tokens(  # type: ignore[no-untyped-def]
    target, own, scale, tokens, vocabulary, ignored, stride, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """Each token's own row, -1 if it has none, and what its loss counts: NaN if it should have one."""
    share = 1.0
    if MEAN:
        share = 1.0 / counted(target, tokens, ignored, stride, BLOCK).to(tl.float32)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = token < tokens
        row = tl.load(target + token * stride, inside, other=ignored).to(tl.int64)
        here = (row >= 0) & (row < vocabulary)
        tl.store(own + token, tl.where(here, row, -1), inside)
        tl.store(scale + token, tl.where(row != ignored, tl.where(here, share, float("nan")), 0.0), inside)
        start += BLOCK


@jit
def add_losses(target, losses, loss, tokens, ignored, stride, MEAN: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum or the mean of the losses of all tokens."""
    sums = tl.zeros((BLOCK,), tl.float32)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        sums += tl.load(losses + token, token < tokens, other=0.0)
        start += BLOCK
    result = tl.sum(sums, 0)
    if MEAN:
        result = result / counted(target, tokens, ignored, stride, BLOCK).to(tl.float32)
    tl.store(loss, result)


class LossAndGradients:
    """Phase two of `loss_and_gradients`. Matrices whose rows are not in order are copied by who reads them."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary = call.dims
        device, target, wide = call.device, call["target"], call["loss"].dtype
        scratch = Scratch()
        self._of_tokens = [scratch.tensor((tokens,), kind) for kind in (I64, F32, F32, F32, F32, F32)]
        budget = BUDGET - scratch.size
        self._split = borrowable(call, budget)
        self._phases: list[Borrowed | InTurn] = []
        if self._split:
            self._phases.append(Borrowed(call, self._split, budget))
        if self._split < tokens:
            self._phases.append(InTurn(call, self._split, budget))
        self._room = scratch.tensor((max(phase.workspace for phase in self._phases),), U8)
        self.workspace = scratch.size
        numbers = (call["ignore_index"], target.strides[0])
        constants = {"MEAN": call["mean"], "BLOCK": TOKENS}
        self._share = Kernel(
            share_tokens, (1,), device, [target.dtype, I64, F32], [tokens, vocabulary, *numbers], constants
        )
        self._add = Kernel(add_losses, (1,), device, [target.dtype, F32, wide], [tokens, *numbers], constants)

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        x, weight, target = args[:3]
        loss, *gradients = outs
        of_tokens = [piece.view(workspace) for piece in self._of_tokens]
        own, scale, _, _, losses, _ = of_tokens
        self._share(target, own, scale)
        for phase in self._phases:
            phase(x, weight, gradients, of_tokens, self._room.view(workspace))
        self._add(target, losses, loss)


class TokenLosses:
    """Phase two of `token_losses`."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary = call.dims
        device, target = call.device, call["target"]
        scratch = Scratch()
        self._of_tokens = [scratch.tensor((tokens,), kind) for kind in (I64, F32)]
        self._share = Kernel(
            share_tokens, (1,), device, [target.dtype, I64, F32],
            [tokens, vocabulary, call["ignore_index"], target.strides[0]], {"MEAN": False, "BLOCK": TOKENS},
        )  # fmt: skip
        self._x = Operand(call["input"], tokens, scratch)
        w = Operand(call["weight"], STRIP_COLUMNS, scratch)
        tiles = Tiles(tokens, vocabulary, scratch)
        self._statistics = Statistics(tokens, self._x, w, call["weight"], None, tiles, scratch, exact=True)
        strides = [call[name].strides[0] for name in (*STATISTICS, "loss")]
        self._merge = merging(tiles, tokens, strides, device, others=True)
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        x, weight, target = args[:3]
        loss, top, total, others = outs
        own, scale = (piece.view(workspace) for piece in self._of_tokens)
        self._share(target, own, scale)
        views = self._statistics(self._x(x, workspace), weight, None, own, workspace)
        self._merge(own, scale, *views, top, total, others, loss, None)


def token_losses(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    return TokenLosses(call) if call.dims.BT else Nothing()


def loss_and_gradients(call: Call) -> Launch:
    """Phase one: matrices in float16, bfloat16 and float32."""
    return LossAndGradients(call) if call.dims.BT else NoTokens(call)
