"""Elementwise loops over operands of any layout.

`Loops.over` drops and merges dimensions for all operands together and orders the rest by stride. The two innermost
loops are cut into tiles; a thread walks whole tiles. Those of operands that are staged (`staging.py`) are small, and
where operands disagree about which dimension is contiguous (a transposed input) such that every cache line is used up
while it is near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..core import loops
from ..core.words import counted
from .compiler import Signature, jit
from .pointers import fetch, moved, put, standing, strides_of
from .staging import (
    HEAD,
    Staging,
    addresses,
    bring,
    bring_back,
    is_staged,
    near_places,
    near_strides,
    stage_size,
    staged_in,
    staged_or,
)  # fmt: skip
from .tables import table
from .threads import Kernel, share, thread_count, threads_in_words

TILE = 16384
"""Elements in a tile that one thread works on, about as many as torch gives a thread at least."""

CROSSED = (64, 16)
"""Rows and columns of a tile where operands are transposed against each other: few columns, because the lines they
lie on compete for the same cache sets when the stride is a power of two."""


@dataclass(frozen=True)
class Loops(loops.Loops):
    """The loops, and what compiled code needs to know about them."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Each operand's stride in the innermost loop."""
        return tuple(strides[-1] if strides else 1 for strides in self.strides)

    def table(self, tile: int = TILE) -> torch.Tensor:
        """What a kernel needs to know, as int64: see `elementwise`. Tiles have so many elements at most."""
        missing = 2 - len(self.sizes)
        sizes = (1,) * missing + self.sizes
        strides = [(0,) * missing + steps for steps in self.strides]
        rows, columns = self._tile(sizes, tile)
        down, across = -(-sizes[-2] // rows), -(-sizes[-1] // columns)
        tiles = down * across
        for size in sizes[:-2]:
            tiles *= size
        head = (tiles, rows, columns, down, across, len(sizes))
        dims = [(sizes[d], *(steps[d] for steps in strides)) for d in reversed(range(len(sizes)))]
        return table([*head, *(value for dim in dims for value in dim)])

    def _tile(self, sizes: tuple[int, ...], tile: int) -> tuple[int, int]:
        if self.crossed:
            return min(CROSSED[0], tile // CROSSED[1]), CROSSED[1]
        columns = max(1, min(sizes[-1], tile))
        return max(1, tile // columns), columns


class Reach:
    """How a kernel of `elementwise` reaches its operands: where they lie, or staged.

    Where they lie, if all have one dtype and their elements lie side by side in the innermost loop. An operand without
    a dtype is absent.
    """

    def __init__(self, loops: Loops, dtypes: Sequence[torch.dtype | None], targets: int, constants: int = 0) -> None:
        first, last = (len(dtypes) - targets - count for count in (constants, 0))
        near = staged_in([*dtypes[:first], *dtypes[last:]])
        near[first:first] = dtypes[first:last]
        staged = [
            dtype is not None and (dtype != close or step != 1) and not first <= k < last
            for k, (dtype, close, step) in enumerate(zip(dtypes, near, loops.steps, strict=True))
        ]
        self.signature: Signature = (torch.int64, torch.int64, *near)
        self.count = loops.count
        self._table = loops.table(stage_size(near, staged) if any(staged) else TILE)
        self._staging = None
        if any(staged):
            strides = [steps[-2] if len(steps) > 1 else 0 for steps in loops.strides]
            self._staging = Staging(dtypes, near, staged, targets, strides, *self.tile)
        self.head = (self._table.data_ptr(), 0 if self._staging is None else self._staging.address)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        rows, columns = self._table[1:3].tolist()
        return rows, columns

    def run(self, kernel: Kernel, addresses: Sequence[int], *more: float) -> None:
        """Run the kernel on operands at these addresses; it may take more arguments behind them."""
        kernel(thread_count(self.count, TILE), *self.head, *addresses, *more)

    def describe(self) -> str:
        """In words."""
        rows, columns = self.tile
        cut = f"{counted(int(self._table[0]), 'tile')} of {rows} × {columns} elements"
        return f"{cut}{', staged' if self._staging else ''}, {threads_in_words(self.count, TILE)}"


def elementwise(point: Any, targets: int = 1, constants: int = 0) -> Any:
    """The compiled `loops(thread, threads, table, staging, pointers)`: target = point(*sources) for every element.

    `point` is a compiled function of numbers, whose result is a tuple if there are several `targets`. `pointers` is
    (*sources, *targets); one that is None is None for `point`, too, or not written. The last `constants` of the sources
    are never staged; in the innermost loop either one element of each serves all or their elements lie side by side.
    `table` (from `Loops.table`) holds: number of tiles, rows and columns of a tile, tiles down and across, number of
    loops; then for each loop, innermost first, its size and each operand's stride, 1 in the innermost unless it is
    staged. `staging` is the words of `Staging`, or null where nothing is staged.
    """

    def loops(thread: int, threads: int, table: Any, staging: Any, pointers: Any) -> None:
        _prefer_256_bits()
        tiles, rows, columns, down, across, depth = table[0], table[1], table[2], table[3], table[4], table[5]
        width = 1 + len(pointers)
        inner = table + HEAD
        outer = inner + width
        still = constants > 0 and inner[width - targets - 1] == 0
        places, begin, near, steps = pointers, 0, 0, strides_of(pointers, outer + 1)
        if is_staged(staging):
            places, begin = near_places(staging, pointers), addresses(pointers)
            near, steps = addresses(places), near_strides(staging, pointers)
        first, last = share(tiles, 1, thread, threads)
        for tile in range(first, last):
            column = tile % across * columns
            rest = tile // across
            row = rest % down * rows
            rest //= down
            lines, length = min(rows, outer[0] - row), min(columns, inner[0] - column)
            at = moved(moved(pointers, inner + 1, column), outer + 1, row)
            for level in range(2, depth):
                loop = inner + level * width
                at = moved(at, loop + 1, rest % loop[0])
                rest //= loop[0]
            far = 0
            if is_staged(staging):
                far = addresses(at)
                bring(staging, begin, far, near, inner + 1, outer + 1, lines, length)
                at = staged_or(staging, places, at)
            if still:
                for r in range(lines):
                    line = standing(moved(at, steps, r), constants, targets)
                    for i in range(length):
                        put(line, i, targets, point(*fetch(line, i, targets)))
            else:
                for r in range(lines):
                    line = moved(at, steps, r)
                    for i in range(length):
                        put(line, i, targets, point(*fetch(line, i, targets)))
            if is_staged(staging):
                bring_back(staging, begin, far, near, inner + 1, outer + 1, lines, length)

    # Machine code goes by its function's name: two loops of equal types must not be taken for each other.
    loops.__qualname__ = f"elementwise_{point.__module__}_{point.__qualname__}".replace(".", "_")
    return jit(loops)


@jit
def element_offset(table: Any, index: int) -> int:
    """Where the index-th element of a single operand lies, by the table of its loops."""
    offset = 0
    for depth in range(table[5]):
        size, stride = table[HEAD + 2 * depth], table[HEAD + 2 * depth + 1]
        offset += index % size * stride
        index //= size
    return offset


@intrinsic
def _prefer_256_bits(typing: Any) -> Any:
    """Vectorise the calling function with 256 bits at most: memory streams a tenth faster than with 512."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        set.add(builder.function.attributes, '"prefer-vector-width"="256"')  # its own add() knows no such attribute
        return context.get_dummy_value()

    return types.void(), emit
