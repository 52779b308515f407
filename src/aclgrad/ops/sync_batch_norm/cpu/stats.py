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
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import DTYPE_CODES, cast, load_any
from aclgrad.cpu.operands import Operands
from aclgrad.cpu.procedures import named
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import THREAD_GROUP, Kernel, barrier, share, thread_count, threads_in_words

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
def _stats(by_rows: bool, in_order: bool) -> Any:
    """The kernel for lines along rows or not, in order of the indices or not."""
    moments = channel_sums(_moments, by_rows, in_order, in_order)

    def kernel(
        thread: int, threads: int, group: Any, table: Any, input: Any, centres: Any, sums: Any, squares: Any,
        mean: Any, invstd: Any, mean_stride: int, invstd_stride: int, eps: float,
    ) -> None:  # fmt: skip
        moments(thread, threads, table, (input,), None, 0, 0, centres, sums, squares)
        barrier(group)
        channels, elements, block = table[0], table[1], table[2]
        first, last = share(channels, 1, thread, threads)
        if elements > 0:
            _unite(first, last, channels, elements, block, centres, sums, squares)
        for c in range(first, last):
            mean[c * mean_stride] = centres[c] if elements > 0 else 0.0
            variance = squares[c] / elements if elements > 0 else math.nan
            invstd[c * invstd_stride] = 1.0 / math.sqrt(variance + eps)

    return named(kernel, f"batch_norm_stats_{by_rows}_{in_order}")


class BatchNormStats:
    """Phase two of `batch_norm_stats`."""

    def __init__(self, call: Call) -> None:
        self._pieces = pieces = Pieces(call["input"])
        scratch = Scratch()
        self._scratch = [scratch.reserve(pieces.blocks * pieces.channels * 8) for _ in range(3)]
        self.workspace = scratch.size
        self._numbers = (call["mean"].strides[0], call["invstd"].strides[0], call["eps"])
        function = _stats(pieces.by_rows, pieces.in_order)
        self._input, self._results = Operands(call, function, "input"), Operands(call, function, "mean", "invstd")
        wide = [torch.float64] * 3
        self._kernel = Kernel(
            function,
            (THREAD_GROUP, torch.int64, *pieces.arguments, *wide, *self._results.dtypes, int, int, float),
        )

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        scratch = 0 if workspace is None else workspace.data_ptr()
        self._kernel(
            thread_count(self._pieces.channels * self._pieces.elements, PIECE),
            self._pieces.table, *self._input.addresses(args, outs), *[scratch + offset for offset in self._scratch],
            *self._results.addresses(args, outs), *self._numbers,
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return self._pieces.describe()


@jit
def _variance(invstd: Any, eps: float) -> Any:
    wide = cast(invstd, eps)
    return 1.0 / (wide * wide) - eps


def _gather(
    thread: int, threads: int, table: Any, mean: Any, invstd: Any, counts: int, means: Any, squares: Any,
    running_mean: Any, running_var: Any, mean_all: Any, invstd_all: Any, momentum: float, eps: float,
) -> None:  # fmt: skip
    """The channels of a thread.

    `table`: processes, channels, code and stride of the counts, strides of both tables down and across, and of the
    four vectors.
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
            means[c] += cast(row[c * table[5]], n) * count
    for c in range(first, last):
        means[c] /= n
    for w in range(processes):
        count = load_any(counts, code, w * counts_stride)
        row, inverses = mean + w * table[4], invstd + w * table[6]
        for c in range(first, last):
            squares[c] += (
                _variance(inverses[c * table[7]], eps) + (cast(row[c * table[5]], n) - means[c]) ** 2
            ) * count
    for c in range(first, last):
        known = processes > 0
        mean_all[c * table[8]] = means[c] if known else 0.0
        invstd_all[c * table[9]] = 1.0 / math.sqrt(squares[c] / n + eps) if known else math.nan
        if running_mean is not None and known:
            _move(running_mean + c * table[10], means[c], momentum)
            _move(running_var + c * table[11], squares[c] / (n - 1.0), momentum)


@jit
def _move(target: Any, goal: float, share: float) -> None:
    target[0] = (1.0 - share) * cast(target[0], goal) + share * goal


class BatchNormGatherStatsWithCounts:
    """Phase two of `batch_norm_gather_stats_with_counts`."""

    def __init__(self, call: Call) -> None:
        mean, invstd, counts = (call[name] for name in ("mean", "invstd", "counts"))
        vectors = [call[name] for name in ("mean_all", "invstd_all", "running_mean", "running_var")]
        self._updates = call["running_mean"] is not None
        running = [meta.dtype if self._updates else None for meta in vectors[2:]]
        scratch = Scratch()
        self._scratch = [scratch.reserve(mean.shape[1] * 8) for _ in range(2)]
        self.workspace = scratch.size
        self._work = mean.numel
        self._table = table(
            [
                *mean.shape, DTYPE_CODES[counts.dtype], counts.strides[0], *mean.strides, *invstd.strides,
                *(0 if meta is None else meta.strides[0] for meta in vectors),
            ]
        )  # fmt: skip
        self._numbers = (call["momentum"], call["eps"])
        self._kernel = Kernel(
            _gather,
            (
                torch.int64, mean.dtype, invstd.dtype, int, torch.float64, torch.float64,
                *running, vectors[0].dtype, vectors[1].dtype, float, float,
            ),
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        _, mean, invstd, running_mean, running_var, _, _, counts = args
        scratch = 0 if workspace is None else workspace.data_ptr()
        running = (running_mean.data_ptr(), running_var.data_ptr()) if self._updates else ()
        self._kernel(
            thread_count(self._work, PIECE), self._table.data_ptr(), mean.data_ptr(), invstd.data_ptr(),
            counts.data_ptr(), *[scratch + offset for offset in self._scratch], *running,
            *[out.data_ptr() for out in outs], *self._numbers,
        )  # fmt: skip

    def describe(self) -> str:
        """In words."""
        processes, channels = self._table[:2].tolist()
        return f"{counted(channels, 'channel')} of {processes} processes, {threads_in_words(self._work, PIECE)}"
