"""How a float32 recurrence can be cut among warp-specialised programs: geometry and what fits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton

from ....dims import LstmDims
from ...limits import Limits
from ..row_owner.cut import MOST_OWNED, UNITS

TILE_K, TILE_ROWS = 64, 64
"""Terms of the depth and rows in a tile of a ring; see `tile_ring`."""

RING_BYTES = 96 * 1024
"""Of both rings."""

ROW_SETS, CONSUMERS = 2, 2
"""Row sets of a group; consumer warp groups that multiply one side by side."""

MOST_ROWS_OWNED = 4
"""Rows of a row set that a program can own: the code for them is unrolled."""

PAIR_UNITS, PAIR_ROWS, PAIR_WEIGHTS = 16, 256, 128
"""Hidden units of a pair of programs, rows of its row sets; bytes of weights that each has for a hidden unit."""


@dataclass(frozen=True)
class WarpSpecialisedBackward:
    """A group has two row sets of `rows`, a program owns `rows_owned` of each and has 1 / `split_k` of the depth 4H.

    Matrix units sum `tiles_per_sum` tiles of the depth.
    """

    rows: int
    rows_owned: int
    split_k: int
    tiles_per_sum: int

    name = "warp-specialised row owners"

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices of units · split_k, groups of two row sets, one direction."""
        return dims.H // UNITS * self.split_k, triton.cdiv(dims.N, ROW_SETS * self.rows), 1

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's, but for the precision."""
        return {
            "H": dims.H, "ROW_WIDTH": triton.next_power_of_2(dims.H), "ROWS": self.rows,
            "ROWS_OWNED": self.rows_owned, "SPLIT_K": self.split_k, "TILES_PER_SUM": self.tiles_per_sum,
        }  # fmt: skip

    def describe(self) -> str:
        """In words."""
        owned = f"{ROW_SETS} × {self.rows_owned} a program"
        return f"{self.name}, groups of {ROW_SETS} × {self.rows} rows, {owned}, split-K {self.split_k}"


@dataclass(frozen=True)
class WarpSpecialisedForward:
    """Pairs of programs, of which each has half of the depth; matrix units sum `tiles_per_sum` tiles of it."""

    tiles_per_sum: int

    name = "warp-specialised pairs"

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices · 2, groups of rows, directions."""
        return dims.H // PAIR_UNITS * 2, triton.cdiv(dims.N, PAIR_ROWS), dims.D

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {"H": dims.H, "TILES_PER_SUM": self.tiles_per_sum}

    def describe(self) -> str:
        """In words."""
        return f"{self.name}, groups of {PAIR_ROWS} rows, {PAIR_UNITS} units a pair"


def warp_specialised_backward(dims: LstmDims, limits: Limits) -> Iterator[WarpSpecialisedBackward]:
    """All cuts that are resident at once, with work for every consumer."""
    tiles = 4 * dims.H // TILE_K
    for split_k in (split_k for split_k in range(1, tiles + 1) if tiles % split_k == 0):
        programs, depth = dims.H // UNITS * split_k, 4 * dims.H // split_k
        if 4 * UNITS * depth + RING_BYTES > limits.all_shared:
            continue
        for groups in range(1, limits.programs // programs + 1):
            rows = triton.cdiv(dims.N, ROW_SETS * groups)
            rows_owned = triton.cdiv(rows, programs)
            of_last = dims.N - (ROW_SETS * groups - 1) * rows
            fits = rows_owned <= MOST_ROWS_OWNED and rows_owned * triton.next_power_of_2(dims.H) <= MOST_OWNED
            if fits and of_last > (CONSUMERS - 1) * TILE_ROWS:
                yield WarpSpecialisedBackward(rows, rows_owned, split_k, 2 - depth // TILE_K % 2)


def warp_specialised_forward(dims: LstmDims, split: int, limits: Limits) -> Iterator[WarpSpecialisedForward]:
    """The one cut, if it is resident at once; operands are split into two parts."""
    if not limits.warpgroups or split == 1 or dims.H % (2 * TILE_K):
        return
    cut = WarpSpecialisedForward(2 - forward_tiles(dims) % 2)
    if math.prod(cut.grid(dims)) <= limits.programs and limits.all_shared > RING_BYTES + PAIR_WEIGHTS * dims.H:
        yield cut


def forward_tiles(dims: LstmDims) -> int:
    """Tiles in the depth that a program of a pair has."""
    return dims.H // 2 // TILE_K
