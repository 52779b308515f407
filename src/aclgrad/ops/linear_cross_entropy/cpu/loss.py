"""CPU kernel of the loss and the softmax, from statistics: one pass over the logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aclgrad.core.backends import Launch
from aclgrad.core.spec import BF16, F16, F32, F64, Call
from aclgrad.core.words import counted
from aclgrad.cpu import threads as cpu_threads
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import DTYPE_CODES, apart, pointer_to
from aclgrad.cpu.threads import share
from aclgrad.cpu.vecmath import exp

LOSS_GRAIN = 1 << 14  # elements that are worth a thread
LINE = 4096  # columns that a thread takes at a time
ONE = np.float32(1)


class Numbers(NamedTuple):
    """Sizes and strides of a call."""

    tokens: int
    columns: int
    logits: int  # the code of their dtype, or NONE
    logits_max: int
    sum_exp: int
    predicted: int
    loss: int
    logits_row: int
    logits_column: int
    softmax_row: int
    softmax_column: int


NONE = -1
HALF, BRAIN, SINGLE, DOUBLE = (DTYPE_CODES[dtype] for dtype in (F16, BF16, F32, F64))
_half, _brain, _single, _double = map(pointer_to, (F16, BF16, F32, F64))


@jit
def _line(out: Any, step: int, logits: Any, logits_step: int, count: int, top: Any, factor: Any) -> None:
    if step == 1 and logits_step == 1:
        for k in range(count):
            out[k] = exp(logits[k] - top) * factor
    else:
        for k in range(count):
            out[k * step] = exp(logits[k * logits_step] - top) * factor


def _kernel(
    thread: int, threads: int, logits_max: Any, sum_exp_logits: Any, predicted_logits: Any, loss: Any, softmax: Any,
    logits: int, *numbers: int,
) -> None:  # fmt: skip
    """Losses of all tokens; their softmax if there are logits, of any dtype."""
    call = Numbers(*numbers)
    first, last = share(call.tokens, 1, thread, threads)
    for token in range(first, last):
        sum_exp = sum_exp_logits[token * call.sum_exp]
        loss[token * call.loss] = math.log(sum_exp) - predicted_logits[token * call.predicted]
    if call.logits != NONE:
        lines = (call.columns + LINE - 1) // LINE
        first, last = share(call.tokens * lines, 1, thread, threads)
        for task in range(first, last):
            token, column = task // lines, task % lines * LINE
            total = sum_exp_logits[token * call.sum_exp]
            out = softmax + (token * call.softmax_row + column * call.softmax_column)
            place, step = token * call.logits_row + column * call.logits_column, call.logits_column
            count, top, factor = min(LINE, call.columns - column), logits_max[token * call.logits_max], ONE / total
            if call.logits == SINGLE:
                _line(out, call.softmax_column, apart(_single(logits) + place, 0), step, count, top, factor)
            elif call.logits == HALF:
                _line(out, call.softmax_column, apart(_half(logits) + place, 0), step, count, top, factor)
            elif call.logits == BRAIN:
                _line(out, call.softmax_column, apart(_brain(logits) + place, 0), step, count, top, factor)
            elif call.logits == DOUBLE:
                _line(out, call.softmax_column, apart(_double(logits) + place, 0), step, count, top, factor)


VECTORS = ("logits_max", "sum_exp_logits", "predicted_logits", "loss")


class CrossEntropyWithMaxSum:
    """Phase two: passes on the addresses of a call beside its sizes and strides."""

    __slots__ = ("_kernel", "_numbers", "_positions", "_work")

    workspace = 0

    def __init__(self, call: Call) -> None:
        logits, softmax = call["vocab_parallel_logits"], call["softmax"]
        code = NONE if logits is None else DTYPE_CODES[logits.dtype]
        matrices = (0, 0, 0, 0) if logits is None else (*logits.strides, *softmax.strides)
        columns = 0 if logits is None else logits.shape[1]
        vectors = (call[name].strides[0] for name in VECTORS)
        self._numbers = tuple(Numbers(call.dims.BT, columns, code, *vectors, *matrices))
        self._work = call.dims.BT * max(columns, 1)
        self._positions = [
            list(call.spec.params).index(name) for name in (*VECTORS, "softmax", "vocab_parallel_logits")
        ]
        dtypes = [call["logits_max"].dtype] * (len(VECTORS) + 1)  # the softmax has it as well
        self._kernel = cpu_threads.compile(_kernel, (*dtypes, int, *(int for _ in self._numbers)))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute into the outputs."""
        tensors = (*args, *outs)
        addresses = [0 if tensors[k] is None else tensors[k].data_ptr() for k in self._positions]
        self._kernel(cpu_threads.thread_count(self._work, LOSS_GRAIN), *addresses, *self._numbers)

    def describe(self) -> str:
        """In words."""
        tokens, columns = self._numbers[:2]
        threads = cpu_threads.threads_in_words(self._work, LOSS_GRAIN)
        return f"{counted(tokens, 'token')} × {counted(columns, 'column')}, {threads}"


def cross_entropy_with_max_sum(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    return CrossEntropyWithMaxSum(call)
