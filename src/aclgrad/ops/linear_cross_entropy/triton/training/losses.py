"""Losses of a whole vocabulary on GPUs, with both gradients in three products, or for every token alone.

Logits are made with their statistics (`../statistics/`). When these are complete, the logits are turned into
p = (softmax − one-hot) · scale and used up by two products of the library. `kept_logits.py` says where and how they are
kept for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, I64, U8, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand

from ...empty import Nothing, NoTokens
from ...training import STATISTICS
from .. import choose
from ..products import Factor
from ..statistics.compute import Statistics
from ..statistics.merge import merging_for_training
from ..statistics.tiles import TileStatistics
from ..tokens import views
from .kept_logits import InWeightGrad, InWorkspace

TOKENS_AT_A_TIME = 1024  # of the one program that looks at all of them


@jit
def counted(target_ptr, tokens, ignored, stride, BLOCK: tl.constexpr):
    """How many tokens have a target that is not to be ignored."""
    count = tl.zeros((BLOCK,), tl.int32)
    start = 0
    while start < tokens:
        token = start + tl.arange(0, BLOCK)
        row = tl.load(target_ptr + token.to(tl.int64) * stride, token < tokens, other=ignored)
        count += (row.to(tl.int64) != ignored).to(tl.int32)
        start += BLOCK
    return tl.sum(count, 0)


@jit
def share_tokens(
    target_ptr, own_ptr, scale_ptr, tokens, vocabulary, ignored, target_stride, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """Each token's own row, -1 if it has none, and what its loss counts: NaN if it should have one."""
    share = 1.0
    if MEAN:
        share = 1.0 / counted(target_ptr, tokens, ignored, target_stride, BLOCK).to(tl.float32)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = token < tokens
        row = tl.load(target_ptr + token * target_stride, inside, other=ignored).to(tl.int64)
        here = (row >= 0) & (row < vocabulary)
        tl.store(own_ptr + token, tl.where(here, row, -1), inside)
        tl.store(scale_ptr + token, tl.where(row != ignored, tl.where(here, share, float("nan")), 0.0), inside)
        start += BLOCK


@jit
def add_losses(
    target_ptr, losses_ptr, loss_ptr, tokens, ignored, target_stride, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum or the mean of the losses of all tokens."""
    sums = tl.zeros((BLOCK,), tl.float32)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        sums += tl.load(losses_ptr + token, token < tokens, other=0.0)
        start += BLOCK
    result = tl.sum(sums, 0)
    if MEAN:
        result = result / counted(target_ptr, tokens, ignored, target_stride, BLOCK).to(tl.float32)
    tl.store(loss_ptr, result)


def sharing(call: Call, own: Operand, scale: Operand, *, mean: bool) -> CallKernel:
    """The kernel of `share_tokens`."""
    tokens, _, vocabulary = call.dims
    return CallKernel(
        call, share_tokens, (1,), [Operand.of(call, "target"), own, scale],
        {
            "tokens": tokens, "vocabulary": vocabulary, "ignored": call["ignore_index"],
            "target_stride": call["target"].strides[0],
        },
        {"MEAN": mean, "BLOCK": TOKENS_AT_A_TIME},
    )  # fmt: skip


class LossAndGradients:
    """Phase two of `loss_and_gradients`. Matrices whose rows are not in order are copied by who reads them."""

    def __init__(self, call: Call) -> None:
        tokens = call.dims.BT
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        vectors = {"own": I64, **dict.fromkeys(("scale", "top", "total", "loss", "own_p"), F32)}
        self._tokens = {name: scratch.tensor((tokens,), dtype) for name, dtype in vectors.items()}
        budget = choose.BUDGET - scratch.size
        in_weight_grad = choose.tokens_in_weight_grad(call, budget)
        self._phases: list[InWeightGrad | InWorkspace] = []
        if in_weight_grad:
            self._phases.append(InWeightGrad(call, in_weight_grad, budget))
        if in_weight_grad < tokens:
            self._phases.append(InWorkspace(call, in_weight_grad, budget))
        self._shared = scratch.tensor((max(phase.workspace for phase in self._phases),), U8)  # by one phase at a time
        self.workspace = scratch.size
        own, scale = (Operand.at(name, self._tokens[name]) for name in ("own", "scale"))
        self._share = sharing(call, own, scale, mean=call["mean"])
        self._add = CallKernel(
            call, add_losses, (1,),
            [Operand.of(call, "target"), Operand.at("losses", self._tokens["loss"]), Operand.of(call, "loss")],
            {"tokens": tokens, "ignored": call["ignore_index"], "target_stride": call["target"].strides[0]},
            {"MEAN": call["mean"], "BLOCK": TOKENS_AT_A_TIME},
        )  # fmt: skip

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        tokens = views(self._tokens, workspace)
        self._share(args, outs, workspace)
        for phase in self._phases:
            phase(given, tokens, self._shared.view(workspace))
        self._add(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return "; ".join(phase.describe() for phase in self._phases)


class TokenLosses:
    """Phase two of `token_losses`."""

    def __init__(self, call: Call) -> None:
        tokens, _, vocabulary = call.dims
        scratch = Scratch()
        self._names = tuple(call.spec.params)
        self._tokens = {name: scratch.tensor((tokens,), dtype) for name, dtype in (("own", I64), ("scale", F32))}
        own, scale = (Operand.at(name, piece) for name, piece in self._tokens.items())
        self._share = sharing(call, own, scale, mean=False)
        self._x = Factor(call["input"], tokens, scratch)
        w = Factor(call["weight"], choose.STRIP_COLUMNS, scratch)
        tiles = TileStatistics(tokens, vocabulary, scratch)
        self._statistics = Statistics(tokens, self._x, w, call["weight"], None, tiles, scratch, exact=True)
        strides = [call[name].strides[0] for name in (*STATISTICS, "loss")]
        self._merge = merging_for_training(tiles, tokens, strides, call.device, others=True)
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        given = dict(zip(self._names, (*args, *outs), strict=True))
        tokens = views(self._tokens, workspace)
        self._share(args, outs, workspace)
        x = self._x(given["input"], workspace)
        tiles = self._statistics(x, given["weight"], None, tokens["own"], workspace)
        top, total, others = (given[name] for name in STATISTICS)
        self._merge({**tokens, **tiles, "top": top, "total": total, "others": others, "loss": given["loss"]})

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


def token_losses(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    return TokenLosses(call) if call.dims.BT else Nothing()


def loss_and_gradients(call: Call) -> Launch:
    """Phase one: matrices in float16, bfloat16 and float32."""
    return LossAndGradients(call) if call.dims.BT else NoTokens(call)
