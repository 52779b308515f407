"""Statistics on the CPU: of a batch, and of the union of several processes' batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.core.words import counted
from aclgrad.cpu.compiler import Signature, jit
from aclgrad.cpu.copies import Copies
from aclgrad.cpu.lanes import DTYPE_CODES, address_of, cast, load_any
from aclgrad.cpu.procedures import named
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier, share, thread_count, threads_in_words
from aclgrad.cpu.vectors import vector_copy

from .channel_sums import PIECE, Pieces, channel_sums


@jit
def _moments(line: Any, i: int, centre: float) -> Any:
    """A deviation and its square."""
    (x,) = line
    deviation = cast(x[i], centre) - centre
    return deviation, deviation * deviation


@jit
def _unite(
    first: int, last: int, channels: int, elements: int, block: int, centres: Any, sums: Any, squares: Any
) -> None:
    """Of the channels from `first` to `last`: the mean into `centres`, the squared deviations from it into `squares`.

    A block's deviations are from its own centre; those of the whole are the blocks', and those of the blocks' means.
    """
    blocks = (elements + block - 1) // block
    for b in range(blocks):
        n = min(block, elements - b * block)
        for c in range(b * channels + first, b * channels + last):
            shift = sums[c] / n
            squares[c] -= sums[c] * shift
            sums[c] = centres[c] + shift
    for c in range(first, last):
        centres[c] = 0.0
    for b in range(blocks):
        n = min(block, elements - b * block)
        for c in range(first, last):
            centres[c] += sums[b * channels + c] * n / elements
    for c in range(first, last):
        squares[c] += (sums[c] - centres[c]) ** 2 * min(block, elements)
    for b in range(1, blocks):
        n = min(block, elements - b * block)
        for c in range(first, last):
            squares[c] += squares[b * channels + c] + (sums[b * channels + c] - centres[c]) ** 2 * n


@cache
def _stats(in_order: bool) -> Any:
    """The kernel that goes in order of the indices or not."""
    moments, copy = channel_sums(_moments, in_order, in_order), vector_copy()

    def kernel(
        thread: int, threads: int, group: Any, table: Any, staging: Any, input: Any, centres: Any, sums: Any,
        squares: Any, mean: int, mean_code: int, mean_stride: int, invstd: int, invstd_code: int, invstd_stride: int,
        eps: float,
    ) -> None:  # fmt: skip
        moments(thread, threads, table, staging, (input,), None, 0, 0, centres, sums, squares)
        barrier(group)
        channels, elements, block = table[0], table[1], table[2]
        first, last = share(channels, 1, thread, threads)
        if elements > 0:
            _unite(first, last, channels, elements, block, centres, sums, squares)
        for c in range(first, last):
            centres[c] = centres[c] if elements > 0 else 0.0
            variance = squares[c] / elements if elements > 0 else math.nan
            squares[c] = 1.0 / math.sqrt(variance + eps)
        copy(mean, mean_code, mean_stride, address_of(centres), first, last, 1)
        copy(invstd, invstd_code, invstd_stride, address_of(squares), first, last, 1)

    return named(kernel, f"batch_norm_stats_{in_order}")


class BatchNormStats:
    """Phase two of `batch_norm_stats`."""

    def __init__(self, call: Call) -> None:
        self._pieces = pieces = Pieces(call["input"])
        scratch = Scratch()
        self._scratch = [scratch.reserve(max(pieces.blocks, 1) * pieces.channels * 8) for _ in range(3)]
        self.workspace = scratch.size
        mean, invstd = ((DTYPE_CODES[call[name].dtype], call[name].strides[0]) for name in ("mean", "invstd"))
        self._mean, self._invstd, self._eps = mean, invstd, call["eps"]
        numbers: Signature = (*[torch.float64] * 3, *[int] * 6, float)
        self._kernel = Kernel(_stats(pieces.in_order), (THREAD_GROUP, *pieces.signature, *numbers))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        scratch = 0 if workspace is None else workspace.data_ptr()
        mean, invstd = outs
        self._kernel(
            thread_count(self._pieces.channels * self._pieces.elements, PIECE),
            *self._pieces.head, args[0].data_ptr(), *[scratch + offset for offset in self._scratch],
            mean.data_ptr(), *self._mean, invstd.data_ptr(), *self._invstd, self._eps,
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return self._pieces.describe()


@jit
def _variance(invstd: Any, eps: float) -> Any:
    wide = cast(invstd, eps)
    return 1.0 / (wide * wide) - eps


@cache
def moving_statistics() -> Any:
    """The compiled `move(mean, var, layouts, row, means, squares, n, momentum, first, last)`.

    Running statistics at two addresses, none if null, go towards those of n values by that share of the distance.
    `layouts` holds code and stride of both, `squares` the sums of squared deviations; `row` is overwritten.
    """
    copy = vector_copy()

    def move(
        mean: int, var: int, layouts: Any, row: Any, means: Any, squares: Any, n: float, momentum: float, first: int,
        last: int,
    ) -> None:  # fmt: skip
        if mean != 0:
            near = address_of(row)
            copy(mean, layouts[0], layouts[1], near, first, last, 0)
            for c in range(first, last):
                row[c] = (1.0 - momentum) * row[c] + momentum * means[c]
            copy(mean, layouts[0], layouts[1], near, first, last, 1)
            copy(var, layouts[2], layouts[3], near, first, last, 0)
            for c in range(first, last):
                row[c] = (1.0 - momentum) * row[c] + momentum * (squares[c] / (n - 1.0))
            copy(var, layouts[2], layouts[3], near, first, last, 1)

    return jit(named(move, "move_statistics"))


@cache
def _gather() -> Any:
    copy, move = vector_copy(), moving_statistics()

    def gather(
        thread: int, threads: int, table: Any, mean: Any, invstd: Any, counts: int, running_mean: int,
        running_var: int, mean_all: int, invstd_all: int, means: Any, squares: Any, moved: Any, momentum: float,
        eps: float,
    ) -> None:  # fmt: skip
        """The channels of a thread; running statistics are moved unless their addresses are null.

        `table`: processes, channels, code and stride of the counts, of both tables the stride from row to row; of the
        four vectors the code and the stride.
        """
        processes, channels, code, counts_stride = table[0], table[1], table[2], table[3]
        first, last = share(channels, 16, thread, threads)
        n = 0.0
        for w in range(processes):
            n += load_any(counts, code, w * counts_stride)
        for c in range(first, last):
            means[c], squares[c] = 0.0, 0.0
        for w in range(processes):
            count = load_any(counts, code, w * counts_stride)
            row = mean + w * table[4]
            for c in range(first, last):
                means[c] += cast(row[c], n) * count
        for c in range(first, last):
            means[c] /= n
        for w in range(processes):
            count = load_any(counts, code, w * counts_stride)
            row, inverses = mean + w * table[4], invstd + w * table[5]
            for c in range(first, last):
                squares[c] += (_variance(inverses[c], eps) + (cast(row[c], n) - means[c]) ** 2) * count
        if processes > 0:
            move(running_mean, running_var, table + 10, moved, means, squares, n, momentum, first, last)
        for c in range(first, last):
            means[c] = means[c] if processes > 0 else 0.0
            squares[c] = 1.0 / math.sqrt(squares[c] / n + eps) if processes > 0 else math.nan
        copy(mean_all, table[6], table[7], address_of(means), first, last, 1)
        copy(invstd_all, table[8], table[9], address_of(squares), first, last, 1)

    return named(gather, "batch_norm_gather_stats")


class BatchNormGatherStatsWithCounts:
    """Phase two of `batch_norm_gather_stats_with_counts`."""

    def __init__(self, call: Call) -> None:
        mean, invstd, counts = (call[name] for name in ("mean", "invstd", "counts"))
        vectors = [call[name] for name in ("mean_all", "invstd_all", "running_mean", "running_var")]
        dtype = torch.float32 if mean.dtype == invstd.dtype == torch.float32 else torch.float64
        scratch = Scratch()
        self._scratch = [scratch.reserve(mean.shape[1] * 8) for _ in range(3)]
        self._copies = Copies((mean, invstd), 0, scratch, dtype)
        self.workspace = scratch.size
        self._work = mean.numel
        rows = [strides[0] for strides in self._copies.strides]
        layouts = [(0, 0) if meta is None else (DTYPE_CODES[meta.dtype], meta.strides[0]) for meta in vectors]
        words = (word for layout in layouts for word in layout)
        self._table = table([*mean.shape, DTYPE_CODES[counts.dtype], counts.strides[0], *rows, *words])
        self._numbers = (call["momentum"], call["eps"])
        self._kernel = Kernel(_gather(), (torch.int64, dtype, dtype, *[int] * 5, *[torch.float64] * 3, float, float))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        _, mean, invstd, running_mean, running_var, _, _, counts = args
        scratch = 0 if workspace is None else workspace.data_ptr()
        vectors = (counts, running_mean, running_var, *outs)
        self._kernel(
            thread_count(self._work, PIECE), self._table.data_ptr(), *self._copies.bring((mean, invstd), workspace),
            *[0 if tensor is None else tensor.data_ptr() for tensor in vectors],
            *[scratch + offset for offset in self._scratch], *self._numbers,
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        processes, channels = self._table[:2].tolist()
        return f"{counted(channels, 'channel')} of {processes} processes, {threads_in_words(self._work, PIECE)}"
