"""Loss and softmax from statistics, on GPUs: one pass over tokens, one over logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from .choose import LINE
from .maths import exponential


@jit
def losses(
    sum_exp_logits_ptr, predicted_logits_ptr, loss_ptr,
    tokens, sum_exp_logits_stride, predicted_logits_stride, loss_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """Log(sum) − predicted, of `BLOCK` tokens."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = token < tokens
    total = tl.load(sum_exp_logits_ptr + token * sum_exp_logits_stride, inside, other=1.0)
    logit = tl.load(predicted_logits_ptr + token * predicted_logits_stride, inside, other=0.0)
    tl.store(loss_ptr + token * loss_stride, tl.log(total) - logit, inside)


@jit
def softmax_of_logits(
    logits_ptr, logits_max_ptr, sum_exp_logits_ptr, softmax_ptr,
    columns, logits_row, logits_column, logits_max_stride, sum_exp_logits_stride, softmax_row, softmax_column,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Exp(logit − max) · (1 / sum) for `BLOCK` columns of a token."""
    token = tl.program_id(0).to(tl.int64)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = column < columns
    x = tl.load(logits_ptr + token * logits_row + column * logits_column, inside, other=0.0).to(tl.float32)
    e = exponential(x - tl.load(logits_max_ptr + token * logits_max_stride), True)
    e = e * tl.div_rn(1.0, tl.load(sum_exp_logits_ptr + token * sum_exp_logits_stride))
    tl.store(softmax_ptr + token * softmax_row + column * softmax_column, e, inside)


class CrossEntropyWithMaxSum:
    """Phase two of `cross_entropy_with_max_sum`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        tokens, logits, softmax = call.dims.BT, call["vocab_parallel_logits"], call["softmax"]
        operands, strides = vectors(call, "sum_exp_logits", "predicted_logits", "loss")
        self._losses = CallKernel(
            call, losses, (triton.cdiv(tokens, LINE),), operands, {"tokens": tokens, **strides}, {"BLOCK": LINE}
        )
        self._softmax = None
        if logits is not None:
            columns = logits.shape[1]
            statistics, strides = vectors(call, "logits_max", "sum_exp_logits")
            self._softmax = CallKernel(
                call, softmax_of_logits, (tokens, triton.cdiv(columns, LINE)),
                [Operand.of(call, "logits", "vocab_parallel_logits"), *statistics, Operand.of(call, "softmax")],
                {
                    "columns": columns, "logits_row": logits.strides[0], "logits_column": logits.strides[1], **strides,
                    "softmax_row": softmax.strides[0], "softmax_column": softmax.strides[1],
                },
                {"BLOCK": LINE},
            )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._losses(args, outs, workspace)
        if self._softmax is not None:
            self._softmax(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return "; ".join(kernel.describe() for kernel in (self._losses, self._softmax) if kernel is not None)


def cross_entropy_with_max_sum(call: Call) -> Launch:
    """Phase one: any strides and contents of the float32 vectors, logits in half types and float32."""
    return CrossEntropyWithMaxSum(call)
