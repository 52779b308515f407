"""CPU kernel of the loss and the softmax, from statistics: one pass over the logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aclgrad.core.backends import Launch
from aclgrad.core.spec import Call
from aclgrad.core.words import counted
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import cast
from aclgrad.cpu.operands import Operands
from aclgrad.cpu.threads import share
from aclgrad.cpu.vecmath import exp

LOSS_GRAIN = 1 << 14  # elements that are worth a thread
LINE = 4096  # columns that a thread takes at a time
ONE = np.float32(1)


class Numbers(NamedTuple):
    """Sizes and strides of a call."""

    tokens: int
    columns: int
    logits_max: int
    sum_exp: int
    predicted: int
    loss: int
    logits_row: int
    logits_column: int
    softmax_row: int
    softmax_column: int


@jit
def _line(out: Any, step: int, logits: Any, logits_step: int, count: int, top: Any, factor: Any) -> None:
    if step == 1 and logits_step == 1:
        for k in range(count):
            out[k] = exp(logits[k] - top) * factor
    else:
        for k in range(count):
            out[k * step] = exp(logits[k * logits_step] - top) * factor


def _kernel(
    thread: int, threads: int, logits_max: Any, sum_exp_logits: Any, predicted_logits: Any,
    vocab_parallel_logits: Any, loss: Any, softmax: Any, *numbers: int,
) -> None:  # fmt: skip
    """Losses of all tokens; their softmax if there are logits."""
    call = Numbers(*numbers)
    first, last = share(call.tokens, 1, thread, threads)
    for token in range(first, last):
        sum_exp = sum_exp_logits[token * call.sum_exp]
        loss[token * call.loss] = math.log(sum_exp) - predicted_logits[token * call.predicted]
    if vocab_parallel_logits is not None:
        lines = (call.columns + LINE - 1) // LINE
        first, last = share(call.tokens * lines, 1, thread, threads)
        for task in range(first, last):
            token, column = task // lines, task % lines * LINE
            total = sum_exp_logits[token * call.sum_exp]
            _line(
                softmax + (token * call.softmax_row + column * call.softmax_column), call.softmax_column,
                vocab_parallel_logits + (token * call.logits_row + column * call.logits_column), call.logits_column,
                min(LINE, call.columns - column), logits_max[token * call.logits_max], cast(ONE, total) / total,
            )  # fmt: skip


class CrossEntropyWithMaxSum:
    """Phase two: passes on the addresses of a call beside its sizes and strides."""

    __slots__ = ("_kernel", "_numbers", "_operands", "_work")

    workspace = 0

    def __init__(self, call: Call) -> None:
        logits, softmax = call["vocab_parallel_logits"], call["softmax"]
        names = ("logits_max", "sum_exp_logits", "predicted_logits", "vocab_parallel_logits", "loss", "softmax")
        self._operands = Operands(call, _kernel, *names)
        matrices = (0, 0, 0, 0) if logits is None else (*logits.strides, *softmax.strides)
        columns = 0 if logits is None else logits.shape[1]
        vectors = (call[name].strides[0] for name in (*names[:3], "loss"))
        self._numbers = tuple(Numbers(call.dims.BT, columns, *vectors, *matrices))
        self._work = call.dims.BT * max(columns, 1)
        self._kernel = cpu_threads.compile(_kernel, (*self._operands.dtypes, *(int for _ in self._numbers)))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute into the outputs."""
        threads = cpu_threads.thread_count(self._work, LOSS_GRAIN)
        self._kernel(threads, *self._operands.addresses(args, outs), *self._numbers)

    def describe(self) -> str:
        """In words."""
        tokens, columns = self._numbers[:2]
        threads = cpu_threads.threads_in_words(self._work, LOSS_GRAIN)
        return f"{counted(tokens, 'token')} × {counted(columns, 'column')}, {threads}"


def cross_entropy_with_max_sum(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return CrossEntropyWithMaxSum(call)
