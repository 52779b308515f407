"""Elementwise kernels over operands of any layout.

`Loops.over` leaves the fewest loops. Where one loop with steps of 1 is left, a kernel walks a line. Otherwise a program
takes a tile: columns along the innermost loop, rows through all other loops together, however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from ..core.loops import Loops
from .launch import few, jit

LINE = 1024
"""Elements of a line, or of a tile, that a program takes."""

NARROW = 32
"""Columns of a tile where there are few elements: there is one kind of tile for all of these, so few kernels."""

DEPTHS = (2, 4, 8)
"""How many loops a kernel has where there are few elements: what is missing counts to 1."""

CROSSED = (32, 64)
"""Rows and columns of a tile where operands are transposed against each other: each has whole sectors to itself."""

INT32 = 2**31 - 2**16
"""Offsets below this are computed in 32 bits; that leaves some for the elements of a tile that do not exist."""


@jit
def place(count, sizes, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr):
    """(rows, columns, which of them exist) of this program's tile; `count` is the number of rows."""
    tile = tl.program_id(0)
    if WIDE:
        tile = tile.to(tl.int64)
    across = tl.cdiv(sizes[0], COLUMNS)
    rows = (tile // across) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return rows, columns, (rows < count) & (columns < sizes[0])


@jit
def offsets(rows, columns, sizes, strides):
    """Where the elements of a tile lie in one operand. Sizes and strides stand innermost first."""
    at = columns * strides[0]
    for loop in tl.static_range(1, len(sizes)):
        if loop + 1 < len(sizes):
            at = at + (rows % sizes[loop]) * strides[loop]
            rows = rows // sizes[loop]
        else:
            at = at + rows * strides[loop]
    return at


@dataclass(frozen=True)
class Tiles:
    """The tiles that cover some loops, as `place` and `offsets` want them."""

    count: int
    rows: int
    columns: int
    down: int
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    wide: bool

    @staticmethod
    def of(loops: Loops, line: int = LINE) -> Tiles:
        """Square tiles where layouts cross, long ones of `line` elements where all operands run the same way."""
        small = few(loops.count)
        depth = next((depth for depth in DEPTHS if depth >= len(loops.sizes)), 0) if small else 2
        missing = depth - len(loops.sizes)
        sizes = (*reversed(loops.sizes), *(1,) * missing)
        strides = tuple((*reversed(steps), *(0,) * missing) for steps in loops.strides)
        down = loops.count // sizes[0] if sizes[0] else 0
        if small:
            rows, columns = line // NARROW, NARROW
        elif loops.crossed:
            rows, columns = CROSSED
        else:
            columns = min(line, triton.next_power_of_2(max(1, sizes[0])))
            rows = min(line // columns, triton.next_power_of_2(max(1, down)))
        tiles = triton.cdiv(down, rows) * triton.cdiv(sizes[0], columns)
        return Tiles(tiles, rows, columns, down, sizes, strides, loops.max_offset >= INT32 or loops.count >= INT32)

    @property
    def square(self) -> bool:
        """Whether they are made for layouts that cross."""
        return (self.rows, self.columns) == CROSSED

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of a kernel over tiles."""
        return {"ROWS": self.rows, "COLUMNS": self.columns, "WIDE": self.wide}
