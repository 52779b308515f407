"""How the forward recurrence can be cut into the programs of a persistent grid: geometry and what fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton

from ....dims import LstmDims
from ...limits import Limits

WARPS = 8
COUNTED_REGISTERS, OTHER_REGISTERS = 264, 56
"""Registers of a thread by a count that knows what the compiler saves; those for everything but products."""

TILE_K, WARPGROUP_HIDDEN = 64, 256
"""Depth that warpgroups take at a time; hidden units from which they are worth thinking of."""


@dataclass(frozen=True)
class PersistentForward:
    """A program has `row_blocks` blocks of `rows` and a slice of `units`; `unit_warps` of its warps share the units.

    A warp has `k_blocks` blocks of `block_k` terms of the depth, of operands in `split` parts. `kept` and `low_kept` of
    these are in registers, of the high and the low part, the others in shared memory; if they are negative, all are
    read at every step. With `stages`, warpgroups multiply and all weights are in shared memory.
    """

    rows: int
    row_blocks: int
    units: int
    unit_warps: int
    block_k: int
    k_blocks: int
    warps: int
    kept: int
    low_kept: int
    split: int
    stages: int = 0

    name = "persistent grid"

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices, groups of rows, directions."""
        return triton.cdiv(dims.H, self.units), triton.cdiv(dims.N, self.rows * self.row_blocks), dims.D

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {
            "H": dims.H, "ROWS": self.rows, "ROW_BLOCKS": self.row_blocks, "UNITS": self.units,
            "UNIT_WARPS": self.unit_warps, "BLOCK_K": self.block_k, "K_BLOCKS": self.k_blocks, "WARPS": self.warps,
            "KEPT": self.kept, "LOW_KEPT": self.low_kept, "STAGES": self.stages,
        }  # fmt: skip

    def describe(self) -> str:
        """In words."""
        if self.stages:
            weights = "weights in shared memory for warpgroups"
        elif self.kept < 0:
            weights = "weights read at every step"
        elif self.kept + self.low_kept == self.split * self.k_blocks:
            weights = "weights in registers"
        else:
            weights = "weights in registers and shared memory" if self.kept else "weights in shared memory"
        return f"{self.name}, {self.rows * self.row_blocks} rows × {self.units} units, {weights}"


def persistent_forward(dims: LstmDims, split: int, limits: Limits) -> Iterator[PersistentForward]:
    """All cuts that are resident at once; operands are split into so many parts."""
    for units in (8, 16, 32, 64):
        groups = limits.programs // (triton.cdiv(dims.H, units) * dims.D)
        if not groups:
            continue
        group = triton.cdiv(dims.N, groups)  # rows
        for rows in (8, 16, 32, 64, 128):
            row_blocks = triton.cdiv(group, rows)
            if row_blocks > 4 or (row_blocks > 1 and rows == 8):
                continue
            found = []
            if units >= 16 and rows <= 32:
                found = [
                    _by_warps(dims, split, limits.shared, rows, row_blocks, units, unit_warps, longest)
                    for unit_warps in (1, 2, 4)
                    for longest in (128, 32)
                    if units % (16 * unit_warps) == 0
                ]
            if limits.warpgroups and dims.H % TILE_K == 0 and dims.H >= WARPGROUP_HIDDEN and rows >= 32:
                found.append(_by_warpgroups(dims, split, limits.all_shared, rows, row_blocks, units))
            yield from (cut for cut in found if cut is not None)


def _by_warps(
    dims: LstmDims, split: int, shared: int, rows: int, row_blocks: int, units: int, unit_warps: int, longest: int
) -> PersistentForward | None:
    """With the weights as near as they fit; None if nothing fits."""
    warps = WARPS if unit_warps * dims.H >= 32 * WARPS else WARPS // 2  # a warp multiplies 32 deep at least
    k_warps, threads = warps // unit_warps, 32 * warps
    depth = triton.cdiv(dims.H, k_warps)
    block_k = max(32, min(longest // split, triton.next_power_of_2(depth)))
    while block_k > 32 and triton.cdiv(depth, block_k) * block_k > 1.15 * depth:
        block_k //= 2
    k_blocks = triton.cdiv(depth, block_k)
    block = weight_block(k_warps, block_k, units)
    sums = 4 * k_warps * units * rows // threads  # registers
    exchange = sums_exchanged(k_warps, units, rows)
    if k_blocks > 12 or sums > 64 or exchange > shared:
        return None
    free = COUNTED_REGISTERS - OTHER_REGISTERS - sums - split * k_blocks * block_k * rows // 64 - 5 * (row_blocks - 1)
    fits = max(0, min(split * k_blocks, free // (block // (4 * threads))))
    kept, low_kept = min(k_blocks, fits), max(0, fits - k_blocks)
    if (split * k_blocks - fits) * block > shared - exchange:
        kept, low_kept = -1, -1
        if split * units * rows > 512:
            return None  # its registers would spill
    return PersistentForward(rows, row_blocks, units, unit_warps, block_k, k_blocks, warps, kept, low_kept, split)


def weight_block(k_warps: int, block_k: int, units: int) -> int:
    """Bytes of a block of weights, of all warps and gates."""
    return k_warps * block_k * 4 * units * 2


def sums_exchanged(k_warps: int, units: int, rows: int) -> int:
    """Bytes of sums that warps exchange through shared memory."""
    return k_warps * units * rows * 16


def _by_warpgroups(
    dims: LstmDims, split: int, shared: int, rows: int, row_blocks: int, units: int
) -> PersistentForward | None:
    """Products by warpgroups from shared memory, for many rows."""
    gates = 4 * units * split
    if gates not in (64, 128):
        return None
    stages = min(6, (shared - gates * dims.H * 2 - gates * rows * 4) // (rows * TILE_K * 2))
    if stages < 4 or units * rows * row_blocks > 4096:
        return None
    return PersistentForward(rows, row_blocks, units, 1, TILE_K, 1, WARPS, -1, -1, split, stages)
