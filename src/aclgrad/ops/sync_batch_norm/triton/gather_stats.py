"""The union of several processes' statistics on a GPU: one program for some channels, through all processes twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.spec import Call
from aclgrad.gpu.launch import Kernel, jit
from aclgrad.gpu.maths import when

PROCESSES, CHANNELS = 32, 16  # that a program takes at a time


@jit
def _table(pointer, row, column, strides, inside):  # type: ignore[no-untyped-def]
    return tl.load(pointer + row * strides[0] + column * strides[1], inside, 1.0).to(tl.float64)


@jit
def _store(target, values, exists):  # type: ignore[no-untyped-def]
    """Write float64 values, which Triton's interpreter cannot make bfloat16 of at once."""
    tl.store(target, values.to(tl.float32).to(target.dtype.element_ty), exists)


@jit
def _move(pointer, at, exists, goal, momentum):  # type: ignore[no-untyped-def]
    """Move a running statistic towards its goal."""
    before = tl.load(pointer + at, exists, 0.0).to(tl.float64)
    _store(pointer + at, (1.0 - momentum) * before + momentum * goal, exists)


@jit
def _gather(  # type: ignore[no-untyped-def]
    mean, invstd, counts, running_mean, running_var, mean_all, invstd_all,
    processes, channels, mean_strides, invstd_strides, counts_stride, strides, momentum, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean and invstd of the whole, and the running statistics."""
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    exists = channel < channels
    column = channel[None, :].to(tl.int64)
    sums = tl.zeros([ROWS, COLUMNS], tl.float64)
    n_of_rows = tl.zeros([ROWS, 1], tl.float64)
    first = 0
    while first < processes:
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        count = tl.load(counts + row * counts_stride, row < processes, 0).to(tl.float64)
        inside = (row < processes) & exists[None, :]
        sums += tl.where(inside, _table(mean, row, column, mean_strides, inside) * count, 0.0)
        n_of_rows += count
        first += ROWS
    n = tl.sum(n_of_rows)
    centre = tl.sum(sums, 0) / n
    squares_of_rows = tl.zeros([ROWS, COLUMNS], tl.float64)
    first = 0
    while first < processes:
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        count = tl.load(counts + row * counts_stride, row < processes, 0).to(tl.float64)
        inside = (row < processes) & exists[None, :]
        away = _table(mean, row, column, mean_strides, inside) - centre[None, :]
        inverse = _table(invstd, row, column, invstd_strides, inside)
        squares_of_rows += tl.where(inside, ((1.0 / (inverse * inverse) - eps) + away * away) * count, 0.0)
        first += ROWS
    squares = tl.sum(squares_of_rows, 0)
    known = processes > 0
    _store(mean_all + channel * strides[0], tl.where(known, centre, 0.0), exists)
    _store(invstd_all + channel * strides[1], tl.where(known, 1.0 / tl.sqrt(squares / n + eps), float("nan")), exists)
    if running_mean is not None:
        _move(running_mean, channel * strides[2], when(known, exists), centre, momentum)
        _move(running_var, channel * strides[3], when(known, exists), squares / (n - 1.0), momentum)


class BatchNormGatherStatsWithCounts:
    """Phase two of `batch_norm_gather_stats_with_counts`."""

    def __init__(self, call: Call) -> None:
        mean, invstd, counts = (call[name] for name in ("mean", "invstd", "counts"))
        self._updates = call["running_mean"] is not None
        names = ("running_mean", "running_var") if self._updates else ()
        running, results = ([call[name] for name in group] for group in (names, ("mean_all", "invstd_all")))
        self.workspace = 0
        dtypes = (
            mean.dtype, invstd.dtype, counts.dtype, *([meta.dtype for meta in running] or (None, None)),
            *(meta.dtype for meta in results),
        )  # fmt: skip
        strides = tuple(meta.strides[0] for meta in (*results, *(running or results)))
        numbers = (
            *mean.shape, mean.strides, invstd.strides, counts.strides[0], strides, call["momentum"], call["eps"]
        )  # fmt: skip
        rows = min(PROCESSES, triton.next_power_of_2(max(1, mean.shape[0])))
        self._kernel = Kernel(
            _gather, (triton.cdiv(mean.shape[1], CHANNELS),), call.device, dtypes, numbers,
            {"ROWS": rows, "COLUMNS": CHANNELS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        _, mean, invstd, running_mean, running_var, _, _, counts = args
        running = (running_mean, running_var) if self._updates else (None, None)
        self._kernel(mean, invstd, counts, *running, *outs)
