"""Losses of a whole vocabulary on GPUs, from logits that are made with their statistics (`../statistics/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from ...empty import Nothing
from ...spec_training import OF_TOKENS
from ..options import LogitOptions
from ..statistics.compute import ExactStatistics
from ..statistics.merge import merging_for_training
from ..tokens import views

TOKENS_AT_A_TIME = 1024  # of the one program that looks at all of them
OUTPUTS = {"others": "sum_exp_others", "predicted": "predicted_logits"}
OUTPUTS |= {name: name for name in (*OF_TOKENS, "correct")}
"""What `merge_for_training` finds for the caller, by the operators' names."""


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
def divisor(normalizer_ptr, target_ptr, tokens, ignored, target_stride, BLOCK: tl.constexpr):
    """What the mean is by: a number that the device holds, or how many tokens count."""
    if normalizer_ptr is not None:
        return tl.load(normalizer_ptr)
    return counted(target_ptr, tokens, ignored, target_stride, BLOCK).to(tl.float32)


@jit
def share_tokens(
    target_ptr, token_weight_ptr, normalizer_ptr, own_ptr, scale_ptr,
    tokens, vocabulary, ignored, target_stride, token_weight_stride, DIVIDES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each token's own row, -1 if it has none, and if wanted what its loss counts: NaN if it should have one."""
    by = 1.0
    if DIVIDES:
        by = divisor(normalizer_ptr, target_ptr, tokens, ignored, target_stride, BLOCK)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = token < tokens
        row = tl.load(target_ptr + token * target_stride, inside, other=ignored).to(tl.int64)
        here = (row >= 0) & (row < vocabulary)
        tl.store(own_ptr + token, tl.where(here, row, -1), inside)
        if scale_ptr is not None:
            weight = 1.0
            if token_weight_ptr is not None:
                weight = tl.load(token_weight_ptr + token * token_weight_stride, inside, other=0.0)
            share = weight / by
            tl.store(scale_ptr + token, tl.where(row != ignored, tl.where(here, share, float("nan")), 0.0), inside)
        start += BLOCK


@jit
def add_losses(
    target_ptr, token_weight_ptr, normalizer_ptr, losses_ptr, loss_ptr,
    tokens, ignored, target_stride, token_weight_stride, losses_stride, DIVIDES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of the losses of all tokens, by their weights if they have some, or its mean."""
    sums = tl.zeros((BLOCK,), tl.float32)
    start = 0
    while start < tokens:
        token = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = token < tokens
        each = tl.load(losses_ptr + token * losses_stride, inside, other=0.0)
        if token_weight_ptr is not None:
            row = tl.load(target_ptr + token * target_stride, inside, other=ignored).to(tl.int64)
            weight = tl.load(token_weight_ptr + token * token_weight_stride, inside, other=0.0)
            each = tl.where(row != ignored, each * weight, 0.0)
        sums += each
        start += BLOCK
    result = tl.sum(sums, 0)
    if DIVIDES:
        result = result / divisor(normalizer_ptr, target_ptr, tokens, ignored, target_stride, BLOCK)
    tl.store(loss_ptr, result)


def sharing(call: Call, own: Piece, scale: Piece | None) -> CallKernel:
    """The kernel of `share_tokens`."""
    tokens, _, vocabulary = call.dims
    (target, weight), strides = vectors(call, "target", "token_weight")
    return CallKernel(
        call, share_tokens, (1,),
        [target, weight, Operand.of(call, "normalizer"), Operand.at("own", own), Operand.at("scale", scale)],
        {"tokens": tokens, "vocabulary": vocabulary, "ignored": call["ignore_index"], **strides},
        {"DIVIDES": scale is not None and _divides(call), "BLOCK": TOKENS_AT_A_TIME},
    )  # fmt: skip


def adding(call: Call, losses: Piece | None, stride: int) -> CallKernel:
    """The kernel of `add_losses`; the losses are in the workspace, or in the output that the call has for them."""
    (target, weight), strides = vectors(call, "target", "token_weight")
    there = Operand.of(call, "losses") if losses is None else Operand.at("losses", losses)
    return CallKernel(
        call, add_losses, (1,),
        [target, weight, Operand.of(call, "normalizer"), there, Operand.of(call, "loss")],
        {"tokens": call.dims.BT, "ignored": call["ignore_index"], **strides, "losses_stride": stride},
        {"DIVIDES": _divides(call), "BLOCK": TOKENS_AT_A_TIME},
    )  # fmt: skip


def _divides(call: Call) -> bool:
    """Whether the sum is divided by a number, or by how many tokens count."""
    return bool(call["mean"]) or call["normalizer"] is not None


def result_strides(call: Call, names: Mapping[str, str]) -> dict[str, int]:
    """The strides of outputs that are wanted, by the names that `merge_for_training` has for them."""
    return {name: call[output].strides[0] for name, output in names.items() if call[output] is not None}


class LossAlone:
    """Phase two of `loss_and_gradients` where no gradient is wanted."""

    def __init__(self, call: Call) -> None:
        scratch = Scratch()
        self._tokens = {
            name: scratch.tensor((call.dims.BT,), dtype)
            for name, dtype in {"own": I64, "top": F32, "total": F32, "loss": F32}.items()
            if name != "loss" or call["losses"] is None
        }
        self._share = sharing(call, self._tokens["own"], None)
        self._statistics = ExactStatistics(call, LogitOptions.of(call), scratch)
        strides = {"top": 1, "total": 1, "loss": 1, **result_strides(call, {"loss": "losses", **OUTPUTS})}
        self._merge = merging_for_training(call, self._statistics.tiles, call.dims.BT, strides, weighs=False)
        self._add = adding(call, self._tokens.get("loss"), strides["loss"])
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        tokens = views(self._tokens, workspace)
        self._share(args, outs, workspace)
        given, known = self._statistics(args, outs, tokens["own"], workspace)
        wanted = {"loss": given["losses"], **{name: given[output] for name, output in OUTPUTS.items()}}
        results = {**wanted, **tokens}
        self._merge({**known, **results, "target": given["target"]})
        self._add(args, outs, workspace)
        if given["logits_max"] is not None:
            given["logits_max"].copy_(tokens["top"])
            given["sum_exp_logits"].copy_(tokens["total"])

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


class TokenLosses:
    """Phase two of `token_losses`."""

    def __init__(self, call: Call) -> None:
        tokens, _, _ = call.dims
        scratch = Scratch()
        self._own = scratch.tensor((tokens,), I64)
        self._share = sharing(call, self._own, None)
        self._statistics = ExactStatistics(call, LogitOptions.of(call), scratch)
        self._results = {"top": "logits_max", "total": "sum_exp_logits", "loss": "loss", **OUTPUTS}
        strides = result_strides(call, self._results)
        self._merge = merging_for_training(call, self._statistics.tiles, tokens, strides, weighs=False)
        self.workspace = scratch.size

    @torch.no_grad()
    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None  # every token has a place there
        own = self._own.view(workspace)
        self._share(args, outs, workspace)
        given, known = self._statistics(args, outs, own, workspace)
        results = {name: given[output] for name, output in self._results.items()}
        self._merge({**known, **results, "target": given["target"], "own": own})

    def describe(self) -> str:
        """In words."""
        return self._statistics.describe()


def token_losses(call: Call) -> Launch:
    """Phase one: any strides, float16, bfloat16 and float32 matrices."""
    return TokenLosses(call) if call.dims.BT else Nothing()
