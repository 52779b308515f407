"""The sums of batch norm's backward pass on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.cpu.compiler import Signature, jit
from aclgrad.cpu.lanes import DTYPE_CODES, address_of, cast, load_any
from aclgrad.cpu.procedures import named
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier, share, thread_count
from aclgrad.cpu.vectors import vector_copy

from .channel_sums import PIECE, Pieces, channel_sums


@jit
def _products(line: Any, i: int, mean: float) -> Any:
    """A gradient, and its product with the input's deviation."""
    grad, x = line
    gradient = cast(grad[i], mean)
    return gradient, gradient * (cast(x[i], mean) - mean)


@jit
def _add_up(first: int, last: int, channels: int, blocks: int, sums: Any) -> None:
    """Add the blocks' sums of the channels from `first` to `last` to those of the first block."""
    for b in range(1, blocks):
        for c in range(first, last):
            sums[c] += sums[b * channels + c]


@cache
def _reduce(by_rows: bool, in_order: bool) -> Any:
    """The kernel for lines along rows or not, in order of the indices or not."""
    products = channel_sums(_products, by_rows, in_order, False)

    def kernel(
        thread: int, threads: int, group: Any, table: Any, staging: Any, grad: Any, x: Any, mean: int, code: int,
        stride: int, centres: Any, sums: Any, deviations: Any,
    ) -> None:  # fmt: skip
        """Leaves the sums of the whole batch where those of the first block were."""
        products(thread, threads, table, staging, (grad, x), mean, code, stride, centres, sums, deviations)
        barrier(group)
        channels, elements, block = table[0], table[1], table[2]
        blocks = (elements + block - 1) // block
        first, last = share(channels, 1, thread, threads)
        _add_up(first, last, channels, blocks, sums)
        _add_up(first, last, channels, blocks, deviations)

    return named(kernel, f"batch_norm_reduce_backward_{by_rows}_{in_order}")


@cache
def _finish() -> Any:
    copy = vector_copy()

    def finish(
        _thread: int, _threads: int, layouts: Any, known: int, sums: Any, deviations: Any, invstd: int,
        sum_dy: int, sum_dy_xmu: int, grad_weight: int, grad_bias: int,
    ) -> None:  # fmt: skip
        """Write the results whose addresses are not null.

        `layouts`: channels, codes and strides of invstd and of the results, one after the other.
        """
        channels = layouts[0]
        if known == 0:
            for c in range(channels):
                sums[c], deviations[c] = 0.0, 0.0
        if sum_dy != 0:
            copy(sum_dy, layouts[3], layouts[4], address_of(sums), 0, channels, 1)
            copy(sum_dy_xmu, layouts[5], layouts[6], address_of(deviations), 0, channels, 1)
        if grad_bias != 0:
            copy(grad_bias, layouts[9], layouts[10], address_of(sums), 0, channels, 1)
        if grad_weight != 0:
            for c in range(channels):
                deviations[c] *= load_any(invstd, layouts[1], c * layouts[2])
            copy(grad_weight, layouts[7], layouts[8], address_of(deviations), 0, channels, 1)

    return named(finish, "batch_norm_reduce_backward_finish")


class BatchNormReduceBackward:
    """Phase two of `batch_norm_reduce_backward`."""

    def __init__(self, call: Call) -> None:
        self._pieces = pieces = Pieces(call["grad_out"], call["input"])
        mean, invstd, *results = (call[name] for name in ("mean", "invstd", *call.spec.out_names))
        scratch = Scratch()
        self._scratch = [scratch.reserve(max(pieces.blocks, 1) * pieces.channels * 8) for _ in range(3)]
        self.workspace = scratch.size
        self._mean = (DTYPE_CODES[mean.dtype], mean.strides[0])
        numbers: Signature = (int, int, int, *[torch.float64] * 3)
        self._sum = Kernel(_reduce(pieces.by_rows, pieces.in_order), (THREAD_GROUP, *pieces.signature, *numbers))
        layouts = [
            (0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in (invstd, *results)
        ]
        self._layouts = table([pieces.channels, *(number for layout in layouts for number in layout)])
        self._finish = Kernel(_finish(), (torch.int64, int, torch.float64, torch.float64, *[int] * 5))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x, mean, invstd, *_ = args
        scratch = 0 if workspace is None else workspace.data_ptr()
        centres, sums, deviations = (scratch + offset for offset in self._scratch)
        if self._pieces.elements:
            self._sum(
                thread_count(self._pieces.channels * self._pieces.elements, PIECE), *self._pieces.head,
                grad.data_ptr(), x.data_ptr(), mean.data_ptr(), *self._mean, centres, sums, deviations,
            )  # fmt: skip
        results = [0 if out is None else out.data_ptr() for out in outs]
        known = int(self._pieces.elements > 0)
        self._finish(1, self._layouts.data_ptr(), known, sums, deviations, invstd.data_ptr(), *results)

    def describe(self) -> str:
        """In words."""
        return self._pieces.describe()
