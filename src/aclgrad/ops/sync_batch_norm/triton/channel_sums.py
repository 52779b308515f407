"""Sums over the channels of a batch on a GPU: how the batch is cut, and where a program finds its part.

A batch is a matrix whose columns each belong to one channel: the elements of a sample, channel by channel, or the
channels alone where they lie innermost in memory. A program takes a strip of columns in a block of rows, a few rows at
a time, and leaves a result for every group of columns. A second launch unites the results of a channel. Blocks depend
on shape, layout and device alone and everything is added in a fixed order, so the bits are the same at every call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from aclgrad.core.loops import Loops
from aclgrad.core.meta import Meta
from aclgrad.gpu.launch import jit, multiprocessors
from aclgrad.gpu.strided import INT32

THREADS = 128  # of a program
WIDEST = 16  # bytes that a thread loads at once
AT_ONCE = 4  # rows that a thread asks for before it adds up the first
RESIDENT = 7  # programs of a multiprocessor: with one more, registers are short
MOST_GROUPED, ENOUGH_GROUPED = 64, 16  # columns of one channel that a program adds up itself
LONG_PLANE = 256  # columns of a channel, from which on strips may end with it: few threads are idle at its end
FOLD, LONG_FOLD = 1024, 8192  # results of a channel, or of several, that are united at a time
FEW_CHANNELS = 1024  # so few that more of the device has work if programs take fewer channels and more of their results


@jit
def strip_of(  # type: ignore[no-untyped-def]
    strips, inner, width, strides, COLUMNS: tl.constexpr, FLAT: tl.constexpr, SPLIT: tl.constexpr, LONG: tl.constexpr
):
    """(channels, which columns exist, where they lie) of this program's strip: each a row.

    A channel has `inner` of the `width` columns; `strides` are those of one operand inside a channel and between
    channels. If `SPLIT`, a strip is part of one channel; if `FLAT`, columns lie in memory side by side.
    """
    strip = tl.program_id(0) % strips
    if LONG:
        strip = strip.to(tl.int64)
    column = tl.arange(0, COLUMNS)[None, :]
    if SPLIT:
        parts = tl.cdiv(inner, COLUMNS)
        column += strip % parts * COLUMNS
        channel = strip // parts
        known = column < inner
        at = column * strides[0] + channel * strides[1]
    else:
        column += strip * COLUMNS
        channel = column // inner
        known = column < width
        at = column if FLAT else column % inner * strides[0] + channel * strides[1]
    return channel, known, at


@jit
def block_of(strips, rows, height, LONG: tl.constexpr):  # type: ignore[no-untyped-def]
    """(block of this program, its first row, how many it has)."""
    block = tl.program_id(0) // strips
    start = block * height
    if LONG:
        start = start.to(tl.int64)
    return block, start, tl.minimum(rows - start, height)


@jit
def grouped(values, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums of groups of columns over all rows."""
    by_column = tl.sum(values, 0)
    return tl.sum(tl.reshape(by_column, [by_column.shape[0] // GROUP, GROUP]), 1)


@jit
def spread(values, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """A number for each group of columns, given to all of them: a row."""
    across = tl.broadcast_to(values[:, None], [values.shape[0], GROUP])
    return tl.reshape(across, [1, values.shape[0] * GROUP])


@jit
def keep(target, values, strips, block, results):  # type: ignore[no-untyped-def]
    """Write the results of this program's groups; `results` is how many a block has."""
    at = tl.program_id(0) % strips * values.shape[0] + tl.arange(0, values.shape[0])
    tl.store(target + block * results + at, values, at < results)


@jit
def kept(step, channels, parts, blocks, LINES: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """(block, part of the channel, place, whether it exists) of the results that a fold takes at a step."""
    line = step * LINES + tl.arange(0, LINES)[:, None]
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    block, part = line // parts, line % parts
    return block, part, (block * channels + channel) * parts + part, (block < blocks) & (channel < channels)


@dataclass(frozen=True)
class Matrix:
    """How batches [N, C, …] of one shape are seen as a matrix, and cut."""

    channels: int
    inner: int  # columns of a channel
    group: int  # of those that a program adds up
    rows: int
    height: int  # rows of a block
    blocks: int
    strips: int
    numbers: tuple[Any, ...]  # what kernels take: see `_moments`
    constants: dict[str, Any]

    @staticmethod
    def of(*batches: Meta) -> Matrix:
        """By shape, layout and device."""
        x = batches[-1]
        channels, across = x.shape[1], [meta.strides[1] for meta in batches]
        rest = [dim for dim in range(x.rank) if dim != 1]
        loops = Loops.over([x.shape[d] for d in rest], *[[meta.strides[d] for d in rest] for meta in batches])
        sizes, strides = list(loops.sizes), [list(steps) for steps in loops.strides]
        planes = bool(sizes) and (channels == 1 or strides[-1][-1] < across[-1])
        inner = sizes.pop() if planes else 1
        inside = [steps.pop() if planes else 1 for steps in strides]
        rows, width = math.prod(sizes), channels * inner

        vector = WIDEST // x.itemsize
        columns = min(triton.next_power_of_2(max(1, width)), THREADS * vector)
        group = math.gcd(inner, columns, MOST_GROUPED)
        split = inner >= LONG_PLANE and group < ENOUGH_GROUPED
        if split:
            columns = group = min(triton.next_power_of_2(inner), THREADS * vector)
        strips = channels * triton.cdiv(inner, columns) if split else triton.cdiv(width, columns)
        at_once = THREADS * vector // columns
        blocks = max(1, min(RESIDENT * multiprocessors(x.device) // max(1, strips), rows // (at_once * AT_ONCE)))
        height = max(1, triton.cdiv(rows, blocks))
        blocks = triton.cdiv(rows, height)
        numbers = (
            strips, inner, width, rows, height, strips if split else width // group,
            (1, *reversed(sizes)), tuple((0, *reversed(steps)) for steps in strides),
            tuple(zip(inside, across, strict=True)),
        )  # fmt: skip
        whole = inner % columns == 0 if split else width % columns == 0
        constants = {
            "ROWS": at_once, "COLUMNS": columns, "GROUP": group, "AT_ONCE": AT_ONCE,
            "FLAT": all(step == 1 for step in inside) and all(step == inner or channels == 1 for step in across),
            "SPLIT": split,
            "FULL": whole and rows % height == 0 and height % (at_once * AT_ONCE) == 0,
            "LONG": any(meta.span // meta.itemsize >= INT32 for meta in batches),
        }  # fmt: skip
        return Matrix(channels, inner, group, rows, height, blocks, strips, numbers, constants)

    @property
    def parts(self) -> int:
        """How many results a channel has in each block."""
        return -(-self.inner // self.group)

    @property
    def results(self) -> int:
        """How many results there are; room for one if there are none."""
        return max(1, self.blocks * self.channels * self.parts)

    @property
    def fold(self) -> tuple[int, dict[str, int], int]:
        """(programs, results and channels that each takes at a time, its warps) of the second launch."""
        few = self.channels < FEW_CHANNELS
        together = 1 if self.parts > 1 else 4 if few else 8
        most = LONG_FOLD if few and self.parts == 1 else FOLD
        lines = min(most // together, triton.next_power_of_2(max(1, self.blocks * self.parts)))
        warps = 8 if lines * together > FOLD else 4
        return triton.cdiv(self.channels, together), {"LINES": lines, "CHANNELS": together}, warps
