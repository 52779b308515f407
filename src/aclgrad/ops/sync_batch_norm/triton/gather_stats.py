"""The union of several processes' statistics on a GPU: one program for some channels, through all processes twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import when
from aclgrad.gpu.operands import CallKernel, Operand, vectors

from .choose import CHANNELS, PROCESSES


@jit
def _rows_of(table_ptr, row, column, strides, inside):
    return tl.load(table_ptr + row * strides[0] + column * strides[1], inside, 1.0).to(tl.float64)


@jit
def _store_float64(target_ptr, values, exists):
    """Write float64 values, which Triton's interpreter cannot make bfloat16 of at once."""
    tl.store(target_ptr, values.to(tl.float32).to(target_ptr.dtype.element_ty), exists)


@jit
def _move(running_ptr, at, exists, goal, momentum):
    """Move a running statistic towards its goal."""
    before = tl.load(running_ptr + at, exists, 0.0).to(tl.float64)
    _store_float64(running_ptr + at, (1.0 - momentum) * before + momentum * goal, exists)


@jit
def gather_stats(
    mean_ptr, invstd_ptr, counts_ptr, running_mean_ptr, running_var_ptr, mean_all_ptr, invstd_all_ptr,
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
        count = tl.load(counts_ptr + row * counts_stride, row < processes, 0).to(tl.float64)
        inside = (row < processes) & exists[None, :]
        sums += tl.where(inside, _rows_of(mean_ptr, row, column, mean_strides, inside) * count, 0.0)
        n_of_rows += count
        first += ROWS
    n = tl.sum(n_of_rows)
    centre = tl.sum(sums, 0) / n
    squares_of_rows = tl.zeros([ROWS, COLUMNS], tl.float64)
    first = 0
    while first < processes:
        row = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        count = tl.load(counts_ptr + row * counts_stride, row < processes, 0).to(tl.float64)
        inside = (row < processes) & exists[None, :]
        away = _rows_of(mean_ptr, row, column, mean_strides, inside) - centre[None, :]
        inverse = _rows_of(invstd_ptr, row, column, invstd_strides, inside)
        squares_of_rows += tl.where(inside, ((1.0 / (inverse * inverse) - eps) + away * away) * count, 0.0)
        first += ROWS
    squares = tl.sum(squares_of_rows, 0)
    known = processes > 0
    _store_float64(mean_all_ptr + channel * strides[0], tl.where(known, centre, 0.0), exists)
    target = invstd_all_ptr + channel * strides[1]
    _store_float64(target, tl.where(known, 1.0 / tl.sqrt(squares / n + eps), float("nan")), exists)
    if running_mean_ptr is not None:
        _move(running_mean_ptr, channel * strides[2], when(known, exists), centre, momentum)
        _move(running_var_ptr, channel * strides[3], when(known, exists), squares / (n - 1.0), momentum)


class BatchNormGatherStatsWithCounts:
    """Phase two of `batch_norm_gather_stats_with_counts`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        processes, channels = call["mean"].shape
        running = ("running_mean", "running_var")
        updates = call["running_mean"] is not None
        results, strides = vectors(call, "mean_all", "invstd_all")
        moved, moved_strides = vectors(call, *running, left_out=() if updates else running)
        all_strides = (*strides.values(), *(moved_strides if updates else strides).values())  # any, where none are read
        rows = next((rows for rows in PROCESSES if rows >= processes), PROCESSES[-1])
        self._kernel = CallKernel(
            call, gather_stats, (triton.cdiv(channels, CHANNELS),),
            [*(Operand.of(call, name) for name in ("mean", "invstd", "counts")), *moved, *results],
            {
                "processes": processes, "channels": channels, "mean_strides": call["mean"].strides,
                "invstd_strides": call["invstd"].strides, "counts_stride": call["counts"].strides[0],
                "strides": all_strides, "momentum": call["momentum"], "eps": call["eps"],
            },
            {"ROWS": rows, "COLUMNS": CHANNELS},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()
