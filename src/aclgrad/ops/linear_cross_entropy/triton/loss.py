"""Loss and softmax from statistics, on GPUs: one pass over tokens, one over logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import Kernel, jit

from .choose import ceil_div
from .probabilities.elementwise import exponential

LINE = 2048  # columns of the softmax, or tokens, that a program takes


@jit
def losses(  # type: ignore[no-untyped-def]
    sum_exp, predicted, loss, tokens, sum_stride, predicted_stride, loss_stride, BLOCK: tl.constexpr
):
    """Loss = log(sum) − predicted."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    total = tl.load(sum_exp + token * sum_stride, inside, other=1.0)
    logit = tl.load(predicted + token * predicted_stride, inside, other=0.0)
    tl.store(loss + token * loss_stride, tl.log(total) - logit, inside)


@jit
def softmax_of_logits(  # type: ignore[no-untyped-def]
    logits, logits_max, sum_exp, softmax,
    columns, logits_row, logits_column, max_stride, sum_stride, softmax_row, softmax_column, BLOCK: tl.constexpr,
):  # fmt: skip
    """Exp(logit − max) · (1 / sum) for `BLOCK` columns of a token."""
    token = tl.program_id(0).to(tl.int64)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = column < columns
    x = tl.load(logits + token * logits_row + column * logits_column, inside, other=0.0).to(tl.float32)
    e = exponential(x - tl.load(logits_max + token * max_stride), True)
    e = e * tl.div_rn(1.0, tl.load(sum_exp + token * sum_stride))
    tl.store(softmax + token * softmax_row + column * softmax_column, e, inside)


class CrossEntropyWithMaxSum:
    """Phase two of `cross_entropy_with_max_sum`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        tokens, logits, softmax = call.dims.BT, call["vocab_parallel_logits"], call["softmax"]
        top, total, predicted, loss = (
            call[name] for name in ("logits_max", "sum_exp_logits", "predicted_logits", "loss")
        )
        vectors = (total, predicted, loss)
        self._losses = Kernel(
            losses, (ceil_div(tokens, LINE),), call.device, [meta.dtype for meta in vectors],
            [tokens, *(meta.strides[0] for meta in vectors)], {"BLOCK": LINE},
        )  # fmt: skip
        self._softmax = None
        if logits is not None:
            columns = logits.shape[1]
            strides = (*logits.strides, top.strides[0], total.strides[0], *softmax.strides)
            self._softmax = Kernel(
                softmax_of_logits, (tokens, ceil_div(columns, LINE)), call.device,
                [meta.dtype for meta in (logits, top, total, softmax)], [columns, *strides], {"BLOCK": LINE},
            )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        top, total, predicted, *_, logits = args
        loss, softmax = outs
        self._losses(total, predicted, loss)
        if self._softmax is not None:
            self._softmax(logits, top, total, softmax)


def cross_entropy_with_max_sum(call: Call) -> Launch:
    """Phase one: any strides and contents of the float32 vectors, logits in half types and float32."""
    return CrossEntropyWithMaxSum(call)
