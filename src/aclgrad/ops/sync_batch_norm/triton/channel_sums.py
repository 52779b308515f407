"""Sums over the channels of a batch on a GPU: where a program finds its part, and where it leaves its results.

A batch is a matrix whose columns each belong to one channel: the elements of a sample, channel by channel, or the
channels alone where they lie innermost in memory. A program takes a strip of columns in a block of rows, a few rows at
a time, and leaves a result for every group of columns. A second launch unites the results of a channel. Everything is
added in a fixed order, so the bits are the same at every call. `choose.ReductionCut` has the sizes.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit


@jit
def strip_of(
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
def block_of(strips, rows, height, LONG: tl.constexpr):
    """(block of this program, its first row, how many it has)."""
    block = tl.program_id(0) // strips
    start = block * height
    if LONG:
        start = start.to(tl.int64)
    return block, start, tl.minimum(rows - start, height)


@jit
def grouped(values, GROUP: tl.constexpr):
    """The sums of groups of columns over all rows."""
    by_column = tl.sum(values, 0)
    return tl.sum(tl.reshape(by_column, [by_column.shape[0] // GROUP, GROUP]), 1)


@jit
def spread(values, GROUP: tl.constexpr):
    """A number for each group of columns, given to all of them: a row."""
    across = tl.broadcast_to(values[:, None], [values.shape[0], GROUP])
    return tl.reshape(across, [1, values.shape[0] * GROUP])


@jit
def keep(target_ptr, values, strips, block, results):
    """Write the results of this program's groups; `results` is how many a block has."""
    at = tl.program_id(0) % strips * values.shape[0] + tl.arange(0, values.shape[0])
    tl.store(target_ptr + block * results + at, values, at < results)


@jit
def kept(step, channels, parts, blocks, LINES: tl.constexpr, CHANNELS: tl.constexpr):
    """(block, part of the channel, place, whether it exists) of the results that a fold takes at a step."""
    line = step * LINES + tl.arange(0, LINES)[:, None]
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    block, part = line // parts, line % parts
    return block, part, (block * channels + channel) * parts + part, (block < blocks) & (channel < channels)
