"""Two sums over every channel of batches of any layout on the CPU.

The elements of a channel are cut into blocks, and the channels into strips, by shape alone. A thread walks whole pieces
and leaves their sums; whoever asked for them adds up the blocks, in order. float32 and the half types are summed in
float64, whatever order suits the layout: it does not show in a result rounded to float32. float64 itself is summed one
element after the other in the order of the indices. So the bits depend neither on the threads nor on the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from aclgrad.core.meta import Meta
from aclgrad.cpu.compiler import Signature, jit
from aclgrad.cpu.lanes import cast, load_any
from aclgrad.cpu.pointers import moved, strides_of
from aclgrad.cpu.procedures import named
from aclgrad.cpu.staging import Staging, addresses, bring, is_staged, near_places, near_strides, stage_size, staged_or
from aclgrad.cpu.strided import Loops
from aclgrad.cpu.tables import table
from aclgrad.cpu.threads import share, threads_in_words

PIECE = 16384  # elements worth a thread
MOST_BLOCKS, LEAST_ROWS = 32, 256  # rows are elements of one channel; fewer of them would be outweighed by their sums
LEAST_CHANNELS = 512  # of a strip where channels lie side by side, which should be long runs of memory
ROWS = 8  # that a sum is kept in a register for
TOGETHER, FEW = 64, 4  # channels that are staged at a time, where they are nearer each other than elements, and else
HEAD = 8


def _in_any_order(function: Any) -> Any:
    """Compile a function whose sums may be taken apart, so that they vectorise."""
    return jit(function, fastmath={"contract", "reassoc"})


@jit
def _placed(pointers: Any, table: Any, index: int) -> Any:
    """The pointers at the index-th element of their channel."""
    loop = table + HEAD + len(pointers)
    for _ in range(table[4]):
        pointers = moved(pointers, loop + 1, index % loop[0])
        index //= loop[0]
        loop = loop + (1 + len(pointers))
    return pointers


@jit
def _finite(number: float) -> float:
    """The number, or 0 for one that would make NaN of all it is subtracted from."""
    return number if number - number == 0.0 else 0.0


@jit
def _centre(at: Any, vector: Any, code: int, offset: int) -> Any:
    """What is subtracted of a channel's elements: its element of a vector if there is one, else the first of them."""
    if vector is None:
        return _finite(cast(at[0][0], 0.0))
    return load_any(vector, code, offset)


@cache
def channel_sums(point: Any, in_order: bool, refined: bool) -> Any:
    """The compiled `sums(thread, threads, table, staging, pointers, vector, code, stride, centres, first, second)`.

    `point(line, i, centre)` gives two numbers for the i-th element of a line: their sums over channel c in block b are
    left in `first[b·C + c]` and `second[b·C + c]`, and what served as their centre in `centres[b·C + c]`. It is the
    channel's element of the `vector`, whose dtype has that code, or without one the first element of the block, or if
    `refined` the block's mean. Lines run through channels where these lie side by side, else through elements of a
    channel, which may be staged. The `table` is that of `Pieces`.
    """
    which = f"{point.__qualname__}_{in_order}_{refined}"

    def line_sums(line: Any, count: int, centre: float, first: float, second: float) -> Any:
        for i in range(count):
            a, b = point(line, i, centre)
            first += a
            second += b
        return first, second

    named(line_sums, f"line_sums_{which}")
    along_a_line = jit(line_sums) if in_order else _in_any_order(line_sums)

    def lines(at: Any, across: Any, count: int, width: int, centres: Any, first: Any, second: Any) -> None:
        for c in range(width):
            first[c], second[c] = along_a_line(moved(at, across, c), count, centres[c], first[c], second[c])

    def rows(at: Any, down: Any, count: int, width: int, centres: Any, first: Any, second: Any) -> None:
        together = count - count % ROWS
        for r in range(0, together, ROWS):
            near = moved(at, down, r)
            for c in range(width):
                a, b, centre = first[c], second[c], centres[c]
                for k in range(ROWS):
                    more_a, more_b = point(moved(near, down, k), c, centre)
                    a += more_a
                    b += more_b
                first[c], second[c] = a, b
        for r in range(together, count):
            row = moved(at, down, r)
            for c in range(width):
                a, b = point(row, c, centres[c])
                first[c], second[c] = first[c] + a, second[c] + b

    many_lines, many_rows = jit(named(lines, f"lines_{which}")), jit(named(rows, f"rows_{which}"))

    def walk(
        begin: int, pointers: Any, table: Any, staging: Any, start: int, end: int, width: int, centres: Any,
        first: Any, second: Any,
    ) -> None:  # fmt: skip
        """A piece: elements from `start` to `end` of some channels, as far at a time as they are evenly spaced."""
        for c in range(width):
            first[c], second[c] = 0.0, 0.0
        across, along = table + HEAD, table + HEAD + len(pointers) + 1
        size, most, together = table[HEAD + len(pointers)], end - start, width
        places, pitches, near = pointers, strides_of(pointers, across), 0
        if is_staged(staging):
            places, pitches = near_places(staging, pointers), near_strides(staging, pointers)
            near, most, together = addresses(places), table[6], table[7]
        while start < end:
            count = min(size - start % size, end - start, most)
            at = _placed(pointers, table, start)
            if table[5] != 0:
                many_rows(at, strides_of(pointers, along), count, width, centres, first, second)
            else:
                for c in range(0, width, together):
                    some, here = min(together, width - c), moved(at, across, c)
                    if is_staged(staging):
                        bring(staging, begin, addresses(here), near, along, across, some, count)
                        here = staged_or(staging, places, here)
                    many_lines(here, pitches, count, some, centres + c, first + c, second + c)
            start += count

    whole_piece = jit(named(walk, f"walk_{which}"))

    def sums(
        thread: int, threads: int, table: Any, staging: Any, pointers: Any, vector: Any, code: int, stride: int,
        centres: Any, first: Any, second: Any,
    ) -> None:  # fmt: skip
        channels, elements, block, strip = table[0], table[1], table[2], table[3]
        across, begin = table + HEAD, addresses(pointers)
        strips = (channels + strip - 1) // strip
        blocks = (elements + block - 1) // block
        mine, others = share(blocks * strips, 1, thread, threads)
        for piece in range(mine, others):
            start, left = piece // strips * block, piece % strips * strip
            end, width = min(start + block, elements), min(strip, channels - left)
            here = piece // strips * channels + left
            corner = moved(pointers, across, left)
            centres_here, first_here, second_here = centres + here, first + here, second + here
            for c in range(width):
                at = _placed(moved(corner, across, c), table, start)
                centres_here[c] = _centre(at, vector, code, (left + c) * stride)
            passes = 2 if refined else 1
            for again in range(passes):
                whole_piece(begin, corner, table, staging, start, end, width, centres_here, first_here, second_here)
                for c in range(width if again + 1 < passes else 0):
                    centres_here[c] += _finite(first_here[c] / (end - start))

    return jit(named(sums, f"channel_sums_{which}"))


class Pieces:
    """How batches [N, C, …] of one shape and dtype are cut, by their metadata.

    `table` holds: channels, elements of a channel, of a block, channels of a strip, number of loops over a channel,
    whether lines run through channels, elements and channels that are staged at a time; the batches' strides across
    channels; then for each loop, innermost first, its size and the strides.
    """

    def __init__(self, *batches: Meta) -> None:
        shape = batches[0].shape
        rest = [dim for dim in range(len(shape)) if dim != 1]
        sizes, strides = [shape[dim] for dim in rest], [[meta.strides[dim] for dim in rest] for meta in batches]
        across = [meta.strides[1] for meta in batches]
        dtypes = [meta.dtype for meta in batches]
        self.in_order = dtypes[0] == torch.float64
        loops = _in_order(sizes, strides) if self.in_order else Loops.over(sizes, *strides)
        inner = loops.steps
        self.channels, self.elements = shape[1], loops.count
        by_rows = 1 not in inner and self.channels > 1 and all(step == 1 for step in across)
        staged = [step != 1 and not by_rows for step in inner]

        block = _block(self.elements, shape)
        strip = max(PIECE // block, LEAST_CHANNELS if by_rows else 1)
        self.blocks = -(-self.elements // block)
        crossed = any(abs(beside) < abs(step) for beside, step in zip(across, inner, strict=True))
        together = min(TOGETHER if crossed else FEW, strip)
        count = stage_size(dtypes, staged) // together if any(staged) else 0
        self._staging = Staging(dtypes, dtypes, staged, 0, across, together, count) if count else None
        head = (self.channels, self.elements, block, strip, len(loops.sizes), int(by_rows), count, together)
        levels = list(zip(loops.sizes, *loops.strides, strict=True))[::-1] or [(1, *[0] * len(batches))]
        self._table = table([*head, *across, *(number for level in levels for number in level)])
        self.head = (self._table.data_ptr(), 0 if self._staging is None else self._staging.address)
        self.signature: Signature = (torch.int64, torch.int64, *dtypes)

    def describe(self) -> str:
        """In words."""
        block, strip = self._table[2:4].tolist()
        order = "channels beside each other" if self._table[5] else "channel after channel"
        staged = ", staged" if self._staging else ""
        cut = f"blocks of {block:,} of {self.elements:,} elements × strips of {strip} channels, {order}{staged}"
        return f"{cut}, {threads_in_words(self.channels * self.elements, PIECE)}"


def _in_order(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> Loops:
    """Loops in the order of the indices."""
    kept = [level for level, size in enumerate(sizes) if size != 1]
    return Loops(tuple(sizes[k] for k in kept), tuple(tuple(steps[k] for k in kept) for steps in strides))


def _block(elements: int, shape: Sequence[int]) -> int:
    """Elements of a channel in a block: whole samples where there are enough of them."""
    samples, channels = shape[:2]
    blocks = max(1, min(MOST_BLOCKS, elements // LEAST_ROWS, elements * channels // PIECE))
    whole = -(-samples // blocks) * (elements // max(1, samples)) if samples >= blocks else -(-elements // blocks)
    return max(1, whole)
