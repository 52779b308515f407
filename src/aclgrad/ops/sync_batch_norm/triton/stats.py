"""Statistics of every channel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.devices import overlaps
from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import when
from aclgrad.gpu.operands import CallKernel, Operand, vectors
from aclgrad.gpu.strided import offsets

from .channel_sums import block_of, grouped, keep, kept, spread, strip_of
from .choose import RESIDENT_REGISTERS, THREADS, ReductionCut


@jit
def moments(
    x_ptr, means_ptr, squares_ptr, strips, inner, width, rows, height, results, sizes, row_strides, column_strides,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr, AT_ONCE: tl.constexpr,
    FLAT: tl.constexpr, SPLIT: tl.constexpr, FULL: tl.constexpr, LONG: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The mean of every group of columns, and the squared deviations from it.

    A thread's deviations are from the mean of the first rows it sees: whatever that is, the sums are right, and near
    the mean they lose nothing. The threads' means are compared by their small distances from a number near all of them:
    far from zero, a mean in float32 is too coarse for what its deviations become when squared.
    """
    block, start, count = block_of(strips, rows, height, LONG)
    _, known, at = strip_of(strips, inner, width, column_strides[0], COLUMNS, FLAT, SPLIT, LONG)
    row = tl.arange(0, ROWS)[:, None]
    seen = tl.maximum((count - row + ROWS - 1) // ROWS, 0).to(tl.float32)
    centre = tl.zeros([ROWS, COLUMNS], tl.float32)
    for k in tl.static_range(AT_ONCE):
        r = row + k * ROWS
        source = x_ptr + offsets(start + r, 0, sizes, row_strides[0]) + at
        centre += tl.load(source, (r < count) & known, 0.0).to(tl.float32)
    centre /= tl.maximum(tl.minimum(seen, AT_ONCE), 1.0)
    centre = tl.where(centre - centre == 0.0, centre, 0.0)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums_of_squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = 0
    while first < height:
        for k in tl.static_range(AT_ONCE):
            r = first + k * ROWS + row
            source = x_ptr + offsets(start + r, 0, sizes, row_strides[0]) + at
            if FULL:
                deviation = tl.load(source).to(tl.float32) - centre
            else:
                inside = (r < count) & known
                deviation = tl.where(inside, tl.load(source, inside, 0.0).to(tl.float32) - centre, 0.0)
            sums += deviation
            sums_of_squares = tl.fma(deviation, deviation, sums_of_squares)
        first += ROWS * AT_ONCE
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    shift = sums / tl.maximum(seen, 1.0)
    seen = tl.where(known, seen, 0.0)
    n = tl.maximum(grouped(seen, GROUP), 1.0)
    near = grouped(tl.where(known, centre + shift, 0.0) * seen, GROUP) / n
    near = tl.where(near - near == 0.0, near, 0.0)
    away = tl.where(known, (centre - spread(near, GROUP)) + shift, 0.0)
    rest = grouped(away * seen, GROUP)
    deviations = grouped((sums_of_squares - sums * shift) + away * away * seen, GROUP) - rest * (rest / n)
    keep(means_ptr, near.to(tl.float64) + rest / n, strips, block, results)
    keep(squares_ptr, deviations, strips, block, results)


@jit
def unite_moments(
    means_ptr, squares_ptr, mean_ptr, invstd_ptr,
    channels, inner, group, parts, rows, height, blocks, strides, eps,
    LINES: tl.constexpr, CHANNELS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Mean and invstd of some channels, each of `inner` columns, from their moments in groups and blocks.

    The squared deviations of the whole are those inside its parts, and those of the parts' means.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < channels
    near = tl.load(means_ptr + channel * parts, when(blocks > 0, exists), 0.0)
    near = tl.where(near - near == 0.0, near, 0.0)
    sums = tl.zeros([LINES, CHANNELS], tl.float64)
    sums_of_squares = tl.zeros([LINES, CHANNELS], tl.float64)
    step = 0
    while step * LINES < blocks * parts:
        block, part, at, inside = kept(step, channels, parts, blocks, LINES, CHANNELS)
        count = tl.minimum(rows - block * height, height).to(tl.float64) * tl.minimum(inner - part * group, group)
        away = tl.load(means_ptr + at, inside, 0.0) - near[None, :]
        sums += tl.where(inside, away * count, 0.0)
        within = tl.load(squares_ptr + at, inside, 0.0).to(tl.float64)
        sums_of_squares += tl.where(inside, within + away * away * count, 0.0)
        step += 1
    n = tl.cast(rows, tl.float64) * inner
    shift = tl.sum(sums, 0) / n
    variance = tl.sum(sums_of_squares, 0) / n - shift * shift
    variance = tl.where(variance < 0.0, 0.0, variance)
    result = tl.where(n > 0, near + shift, 0.0)
    tl.store(mean_ptr + channel * strides[0], result.to(mean_ptr.dtype.element_ty), exists)
    target = invstd_ptr + channel * strides[1]
    tl.store(target, (1.0 / tl.sqrt(variance + eps)).to(invstd_ptr.dtype.element_ty), exists)


class BatchNormStats:
    """Phase two of `batch_norm_stats`."""

    def __init__(self, call: Call) -> None:
        cut, overlap = ReductionCut.of(call["input"]), overlaps(call.device)
        scratch = Scratch()
        means, squares = (scratch.tensor((cut.results,), dtype) for dtype in (torch.float64, torch.float32))
        self.workspace = scratch.size
        kept = [Operand.at("means", means), Operand.at("squares", squares)]
        self._sum = CallKernel(
            call, moments, (cut.strips * cut.blocks,), [Operand.of(call, "x", "input"), *kept], cut.numbers,
            {**cut.constants, "OVERLAP": overlap}, num_warps=THREADS // 32,
            maxnreg=RESIDENT_REGISTERS if cut.group > 1 and cut.constants["FULL"] else None,  # or registers would spill
        )  # fmt: skip
        programs, at_a_time, warps = cut.fold
        results, strides = vectors(call, "mean", "invstd")
        numbers = {
            "channels": cut.channels, "inner": cut.inner, "group": cut.group, "parts": cut.parts, "rows": cut.rows,
            "height": cut.height, "blocks": cut.blocks, "strides": tuple(strides.values()), "eps": call["eps"],
        }  # fmt: skip
        self._unite = CallKernel(
            call, unite_moments, (programs,), [*kept, *results], numbers, {**at_a_time, "OVERLAP": overlap},
            launch_pdl=overlap, num_warps=warps,
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._sum(args, outs, workspace)
        self._unite(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return f"{self._sum.describe()}; {self._unite.describe()}"
