"""Statistics of every channel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import Kernel, jit, overlaps
from aclgrad.gpu.maths import when
from aclgrad.gpu.strided import offsets

from . import channel_sums
from .channel_sums import Matrix, block_of, grouped, keep, kept, spread, strip_of

REGISTERS = 65536 // (channel_sums.RESIDENT * channel_sums.THREADS) // 8 * 8  # of a thread, so that all are resident


@jit
def _moments(  # type: ignore[no-untyped-def]
    x, means, squares, strips, inner, width, rows, height, results, sizes, row_strides, column_strides,
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
        source = x + offsets(start + r, 0, sizes, row_strides[0]) + at
        centre += tl.load(source, (r < count) & known, 0.0).to(tl.float32)
    centre /= tl.maximum(tl.minimum(seen, AT_ONCE), 1.0)
    centre = tl.where(centre - centre == 0.0, centre, 0.0)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums_of_squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = 0
    while first < height:
        for k in tl.static_range(AT_ONCE):
            r = first + k * ROWS + row
            source = x + offsets(start + r, 0, sizes, row_strides[0]) + at
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
    keep(means, near.to(tl.float64) + rest / n, strips, block, results)
    keep(squares, deviations, strips, block, results)


@jit
def _unite(  # type: ignore[no-untyped-def]
    means, squares, mean, invstd, channels, inner, group, parts, rows, height, blocks, strides, eps,
    LINES: tl.constexpr, CHANNELS: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """Mean and invstd of some channels, each of `inner` columns, from their moments in groups and blocks.

    The squared deviations of the whole are those inside its parts, and those of the parts' means.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    exists = channel < channels
    near = tl.load(means + channel * parts, when(blocks > 0, exists), 0.0)
    near = tl.where(near - near == 0.0, near, 0.0)
    sums = tl.zeros([LINES, CHANNELS], tl.float64)
    sums_of_squares = tl.zeros([LINES, CHANNELS], tl.float64)
    step = 0
    while step * LINES < blocks * parts:
        block, part, at, inside = kept(step, channels, parts, blocks, LINES, CHANNELS)
        count = tl.minimum(rows - block * height, height).to(tl.float64) * tl.minimum(inner - part * group, group)
        away = tl.load(means + at, inside, 0.0) - near[None, :]
        sums += tl.where(inside, away * count, 0.0)
        within = tl.load(squares + at, inside, 0.0).to(tl.float64)
        sums_of_squares += tl.where(inside, within + away * away * count, 0.0)
        step += 1
    n = tl.cast(rows, tl.float64) * inner
    shift = tl.sum(sums, 0) / n
    variance = tl.sum(sums_of_squares, 0) / n - shift * shift
    variance = tl.where(variance < 0.0, 0.0, variance)
    result = tl.where(n > 0, near + shift, 0.0)
    tl.store(mean + channel * strides[0], result.to(mean.dtype.element_ty), exists)
    tl.store(invstd + channel * strides[1], (1.0 / tl.sqrt(variance + eps)).to(invstd.dtype.element_ty), exists)


class BatchNormStats:
    """Phase two of `batch_norm_stats`."""

    def __init__(self, call: Call) -> None:
        x, mean, invstd = (call[name] for name in ("input", "mean", "invstd"))
        cut, overlap, single = Matrix.of(x), overlaps(call.device), torch.float32
        scratch = Scratch()
        self._kept = [scratch.tensor((cut.results,), dtype) for dtype in (torch.float64, single)]
        self.workspace = scratch.size
        self._sum = Kernel(
            _moments, (cut.strips * cut.blocks,), call.device, (x.dtype, torch.float64, single), cut.numbers,
            {**cut.constants, "OVERLAP": overlap}, num_warps=channel_sums.THREADS // 32,
            maxnreg=REGISTERS if cut.group > 1 and cut.constants["FULL"] else None,  # elsewhere registers would spill
        )  # fmt: skip
        programs, at_a_time, warps = cut.fold
        numbers = (
            cut.channels, cut.inner, cut.group, cut.parts, cut.rows, cut.height, cut.blocks,
            (mean.strides[0], invstd.strides[0]), call["eps"],
        )  # fmt: skip
        self._unite = Kernel(
            _unite, (programs,), call.device, (torch.float64, single, mean.dtype, invstd.dtype), numbers,
            {**at_a_time, "OVERLAP": overlap}, launch_pdl=overlap, num_warps=warps,
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        assert workspace is not None
        results = [placed(piece, workspace) for piece in self._kept]
        self._sum(args[0], *results)
        self._unite(*results, *outs)
