"""How the gradient's recurrence can be cut into the programs of a persistent grid: geometry and what fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import triton

from ....dims import LstmDims
from ...limits import Limits

WARPS = 8
WEIGHT_REGISTERS = 128
"""Registers of a thread that weights may fill, of 255."""

WARPGROUP_UNITS, WARPGROUP_ROWS = 64, 64
"""Units of a slice whose products warpgroups make; rows, or twice as many, with which that pays."""


class WeightsIn(Enum):
    """Where a program has its part of w_hh; the numbers are those of `backward_products`."""

    REGISTERS = 0
    SHARED = 1
    MEMORY = 2
    SHARED_FOR_WARPGROUPS = 3


WORDS = {
    WeightsIn.REGISTERS: "weights in registers",
    WeightsIn.SHARED: "weights in shared memory",
    WeightsIn.MEMORY: "weights read at every step",
    WeightsIn.SHARED_FOR_WARPGROUPS: "weights in shared memory for warpgroups",
}


@dataclass(frozen=True)
class PersistentBackward:
    """A program has `row_blocks` blocks of `rows` and a slice of `units`, and 1 / `split_k` of the depth 4H.

    Each of its warps has `k_blocks` blocks of `block_k` terms of that.
    """

    rows: int
    row_blocks: int
    units: int
    split_k: int
    block_k: int
    k_blocks: int
    weights_in: WeightsIn
    warps: int = WARPS
    stages: int = 1

    name = "persistent grid"

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices · split_k, groups of rows, directions."""
        slices, groups = triton.cdiv(dims.H, self.units), triton.cdiv(dims.N, self.rows * self.row_blocks)
        return slices * self.split_k, groups, dims.D

    def constants(self, dims: LstmDims, dtype: torch.dtype) -> dict[str, Any]:
        """The kernel's, but for the precision."""
        return {
            "H": dims.H, "ROWS": self.rows, "ROW_BLOCKS": self.row_blocks, "UNITS": self.units,
            "SPLIT_K": self.split_k, "BLOCK_K": self.block_k, "K_BLOCKS": self.k_blocks, "WARPS": self.warps,
            "VECTOR": 16 // dtype.itemsize, "WEIGHTS_IN": self.weights_in.value, "STAGES": self.stages,
        }  # fmt: skip

    def describe(self) -> str:
        """In words."""
        split = f" split-K {self.split_k}," if self.split_k > 1 else ""
        return f"{self.name}, {self.rows * self.row_blocks} rows × {self.units} units,{split} {WORDS[self.weights_in]}"


def persistent_backward(dims: LstmDims, itemsize: int, limits: Limits) -> Iterator[PersistentBackward]:
    """All cuts that are resident at once."""
    for units in (16, 32, 64):
        for split_k in (1, 2, 4):
            programs = triton.cdiv(dims.H, units) * split_k * dims.D
            if units // split_k < 8 or programs > limits.programs:
                continue
            group = triton.cdiv(dims.N, limits.programs // programs)  # rows
            for rows in (8, 16, 32):
                row_blocks = triton.cdiv(group, rows)
                if (row_blocks == 1 or rows >= 16) and row_blocks <= 4:
                    cut = _by_warps(dims, itemsize, limits.shared, rows, row_blocks, units, split_k)
                    if cut is not None:
                        yield cut
            if units == WARPGROUP_UNITS and itemsize == 2 and limits.warpgroups and group > WARPGROUP_ROWS // 2:
                cut = _by_warpgroups(dims, limits.shared, triton.next_power_of_2(group), split_k)
                if cut is not None:
                    yield cut


def warp_depth(dims: LstmDims, split_k: int) -> int:
    """Terms of the depth that a warp multiplies."""
    depth: int = triton.cdiv(triton.cdiv(4 * dims.H, split_k), WARPS)
    return depth


def _by_warps(
    dims: LstmDims, itemsize: int, shared: int, rows: int, row_blocks: int, units: int, split_k: int
) -> PersistentBackward | None:
    """With the weights as near as they fit; None if nothing fits."""
    depth, least = warp_depth(dims, split_k), 64 // itemsize
    block_k = min(256 if itemsize == 2 else 64, triton.next_power_of_2(max(depth, least)))
    while block_k > least and triton.cdiv(depth, block_k) * block_k > 1.15 * depth:
        block_k //= 2
    k_blocks = triton.cdiv(depth, block_k)
    weights = WARPS * block_k * k_blocks * units * itemsize
    exchange = WARPS * units * rows * 4
    if exchange > shared or k_blocks > 16 or units * rows > 2048:
        return None
    registers = WEIGHT_REGISTERS if itemsize == 2 else WEIGHT_REGISTERS // 2  # float32 is split in registers
    if weights <= WARPS * 32 * 4 * registers:
        weights_in = WeightsIn.REGISTERS
    else:
        weights_in = WeightsIn.SHARED if weights + exchange <= shared else WeightsIn.MEMORY
    if weights_in is WeightsIn.MEMORY and itemsize == 4 and units * rows > 512:
        return None  # its registers would spill
    return PersistentBackward(rows, row_blocks, units, split_k, block_k, k_blocks, weights_in)


def _by_warpgroups(dims: LstmDims, shared: int, rows: int, split_k: int) -> PersistentBackward | None:
    """Products by warpgroups from shared memory, for half precision and many rows."""
    depth = 4 * dims.H // split_k
    stages = 3 if rows == 128 else 4
    weights, passing, exchange = WARPGROUP_UNITS * depth * 2, stages * rows * 128, WARPGROUP_UNITS * rows * 4
    if rows > 2 * WARPGROUP_ROWS or 4 * dims.H % (64 * split_k) or weights + passing + exchange > shared:
        return None
    block_k = (depth // WARPS) & -(depth // WARPS)
    return PersistentBackward(
        rows, 1, WARPGROUP_UNITS, split_k, block_k, depth // WARPS // block_k, WeightsIn.SHARED_FOR_WARPGROUPS, WARPS,
        stages,
    )  # fmt: skip
