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
def _reduce(in_order: bool) -> Any:
    """The kernel that goes in order of the indices or not."""
    products, copy = channel_sums(_products, in_order, False), vector_copy()

    def kernel(
        thread: int, threads: int, group: Any, table: Any, staging: Any, grad: Any, x: Any, mean: int,
        centres: Any, sums: Any, deviations: Any, layouts: Any, invstd: int,
        sum_dy: int, sum_dy_xmu: int, grad_weight: int, grad_bias: int,
    ) -> None:  # fmt: skip
        """Results whose addresses are null are not written.

        `layouts`: codes and strides of the mean, of invstd and of the results.
        """
        products(thread, threads, table, staging, (grad, x), mean, layouts[0], layouts[1], centres, sums, deviations)
        barrier(group)
        channels, elements, block = table[0], table[1], table[2]
        blocks = (elements + block - 1) // block
        first, last = share(channels, 1, thread, threads)
        if blocks == 0:
            for c in range(first, last):
                sums[c], deviations[c] = 0.0, 0.0
        _add_up(first, last, channels, blocks, sums)
        _add_up(first, last, channels, blocks, deviations)
        if sum_dy != 0:
            copy(sum_dy, layouts[4], layouts[5], address_of(sums), first, last, 1)
            copy(sum_dy_xmu, layouts[6], layouts[7], address_of(deviations), first, last, 1)
        if grad_bias != 0:
            copy(grad_bias, layouts[10], layouts[11], address_of(sums), first, last, 1)
        if grad_weight != 0:
            for c in range(first, last):
                deviations[c] *= load_any(invstd, layouts[2], c * layouts[3])
            copy(grad_weight, layouts[8], layouts[9], address_of(deviations), first, last, 1)

    return named(kernel, f"batch_norm_reduce_backward_{in_order}")


class BatchNormReduceBackward:
    """Phase two of `batch_norm_reduce_backward`."""

    def __init__(self, call: Call) -> None:
        self._pieces = pieces = Pieces(call["grad_out"], call["input"])
        vectors = [call[name] for name in ("mean", "invstd", *call.spec.out_names)]
        scratch = Scratch()
        self._scratch = [scratch.reserve(max(pieces.blocks, 1) * pieces.channels * 8) for _ in range(3)]
        self.workspace = scratch.size
        layouts = [(0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in vectors]
        self._layouts = table(layouts)
        self._layouts_address = self._layouts.data_ptr()
        more: Signature = (int, *[torch.float64] * 3, torch.int64, *[int] * 5)
        self._kernel = Kernel(_reduce(pieces.in_order), (THREAD_GROUP, *pieces.signature, *more))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        grad, x, mean, invstd, *_ = args
        scratch = 0 if workspace is None else workspace.data_ptr()
        self._kernel(
            thread_count(self._pieces.channels * self._pieces.elements, PIECE), *self._pieces.head,
            grad.data_ptr(), x.data_ptr(), mean.data_ptr(), *[scratch + offset for offset in self._scratch],
            self._layouts_address, invstd.data_ptr(), *[0 if out is None else out.data_ptr() for out in outs],
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return self._pieces.describe()
