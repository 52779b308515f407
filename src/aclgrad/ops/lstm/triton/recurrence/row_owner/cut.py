"""How the gradient's recurrence can be cut among programs that own rows: geometry and what fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton

from ....dims import LstmDims
from ...limits import Limits

WARPS = 8
UNITS = 64
"""Units of a program that multiplies."""

LEAST_ROWS, MOST_ROWS, BLOCK_ROWS = 16, 256, 128
"""Rows of a group, and how many of them are multiplied at a time."""

MOST_OWNED = 2048
"""Elements of rows that a program can own, of each row set where there are two."""

MOST_STAGES = 3


@dataclass(frozen=True)
class RowOwner:
    """A group has `rows`, a program owns `rows_owned` and multiplies with 1 / `split_k` of the depth 4H."""

    rows: int
    rows_owned: int
    split_k: int
    block_k: int
    stages: int

    name = "row owners"

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices of units · split_k, groups of rows, one direction."""
        return dims.H // UNITS * self.split_k, triton.cdiv(dims.N, self.rows), 1

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's, but for the precision."""
        return {
            "H": dims.H, "ROW_WIDTH": triton.next_power_of_2(dims.H), "ROWS": self.rows,
            "ROWS_OWNED": self.rows_owned, "SPLIT_K": self.split_k, "BLOCK_K": self.block_k, "STAGES": self.stages,
            "WARPS": WARPS,
        }  # fmt: skip

    def describe(self) -> str:
        """In words."""
        return f"{self.name}, groups of {self.rows} rows, {self.rows_owned} a program, split-K {self.split_k}"


def takes(dims: LstmDims, dtype: torch.dtype, limits: Limits) -> bool:
    """Whether there are kernels with row owners for this: float32 on Hopper, one direction, whole slices."""
    return limits.warpgroups and dtype == torch.float32 and dims.H % UNITS == 0 and dims.D == 1


def row_owner(dims: LstmDims, limits: Limits) -> Iterator[RowOwner]:
    """All cuts that are resident at once."""
    for split_k in (1, 2, 4, 8, 16, 32):
        programs, depth = dims.H // UNITS * split_k, 4 * dims.H // split_k
        if programs > limits.programs or depth % 32:
            continue
        groups = limits.programs // programs
        rows = max(LEAST_ROWS, triton.next_power_of_2(triton.cdiv(dims.N, groups)))
        rows_owned = triton.cdiv(rows, programs)
        if rows > MOST_ROWS or rows_owned * triton.next_power_of_2(dims.H) > MOST_OWNED:
            continue
        for block_k in (64, 32):
            stages = min(MOST_STAGES, (limits.shared - 4 * UNITS * depth) // (4 * min(rows, BLOCK_ROWS) * block_k))
            if depth % block_k == 0 and stages >= 2:
                yield RowOwner(rows, rows_owned, split_k, block_k, stages)
                break
