"""Which team of programs runs a forward recurrence: the cheapest that fits the device, by a model of a step's time.

The model's constants were fitted to steps measured on an H200; all they have to do is to rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton

from ....dims import LstmDims
from ...choose import FETCH, MULTIPLY, READ, RESERVED, RINGS, SLICE, Limits, Place

REGISTERS, OTHER_REGISTERS = 264, 56
"""Registers of a thread by a count that knows what the compiler saves; those for everything but products."""

WARPS = 8
MEETING, ANOTHER_CHUNK, CELL = 1.5, 0.3, 0.25
"""Microseconds a step costs at least; for every further chunk of rows, and element of h that a thread has, on top."""

EXCHANGE = 200e3
"""Bytes that the warps of a program exchange in a microsecond."""

WIDE_MULTIPLY, WIDE_ROW, WIDE_CHUNK, WIDE_SUM = 1.7, 0.007, 1.0, 0.1
"""Microseconds of a wide product on top of reading: at least, for every row, for every chunk of several; for every
piece of the depth, where operands are in two parts and sums begin anew."""

LAUNCHED, STEP_MULTIPLY = 7.0, 200e6
"""Microseconds of a step that is launched by itself at least; multiplications of half precision in a microsecond."""

PAIR_UNITS, PAIR_ROWS, PAIR_WEIGHTS = 16, 256, 128
"""Hidden units of a pair of programs, rows of its streams; bytes of weights that each has for a hidden unit."""

PAIR_STEP, PAIR_SLICE = 7.5, 0.8
"""Microseconds of a pair's step, and for every slice of the depth on top."""

CHUNK, WIDE_HIDDEN = 64, 256
"""Depth that a wide product takes at a time; hidden units from which it is worth thinking of."""


@dataclass(frozen=True)
class ForwardTeam:
    """How a recurrence is cut; see `triton_forward_team`. `cost` is a guess at the microseconds of a step.

    `kept` and `low_kept` of the `subs` pieces of a program's weights are in registers, the others in shared memory; if
    they are negative, all are read at every step. With `stages` a team is wide and has its weights in shared memory.
    """

    rows: int
    chunks: int
    units: int
    across: int
    deep: int
    subs: int
    warps: int
    kept: int
    low_kept: int
    cost: float
    stages: int = 0

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices, groups of rows, directions."""
        return triton.cdiv(dims.H, self.units), triton.cdiv(dims.N, self.rows * self.chunks), dims.D

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {
            "H": dims.H, "ROWS": self.rows, "CHUNKS": self.chunks, "UNITS": self.units, "ACROSS": self.across,
            "DEEP": self.deep, "SUBS": self.subs, "WARPS": self.warps, "KEPT": self.kept, "LOW_KEPT": self.low_kept,
            "STAGES": self.stages,
        }  # fmt: skip


@dataclass(frozen=True)
class ForwardPairs:
    """How a recurrence is cut; see `triton_forward_pair`. `cost` is a guess at the microseconds of a step.

    Sums begin anew after `piece` slices of the depth.
    """

    piece: int
    cost: float

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices · 2, groups of rows, directions."""
        return dims.H // PAIR_UNITS * 2, triton.cdiv(dims.N, PAIR_ROWS), dims.D

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {"H": dims.H, "PIECE": self.piece}


def best_team(dims: LstmDims, parts: int, limits: Limits | None) -> ForwardTeam | None:
    """The cheapest team that is resident at once, if there is one. Operands come in one part or in two."""
    if limits is None:
        return None
    return min(teams(dims, parts, limits), key=lambda team: team.cost, default=None)


def best_pairs(dims: LstmDims, parts: int, limits: Limits | None) -> ForwardPairs | None:
    """Pairs of programs, if all are resident at once. They multiply operands in two parts."""
    if limits is None or not limits.warpgroups or parts == 1 or dims.H % (2 * SLICE):
        return None
    slices = dims.H // 2 // SLICE
    pairs = ForwardPairs(2 - slices % 2, PAIR_STEP + slices * PAIR_SLICE)
    fits = math.prod(pairs.grid(dims)) <= limits.programs and limits.shared + RESERVED > RINGS + PAIR_WEIGHTS * dims.H
    return pairs if fits else None


def steps_cost(dims: LstmDims, parts: int) -> float:
    """A guess at the microseconds of a step that is launched by itself."""
    return LAUNCHED + dims.D * dims.N * 4 * dims.H * dims.H * (6 if parts == 2 else 1) / STEP_MULTIPLY


def teams(dims: LstmDims, parts: int, limits: Limits) -> Iterator[ForwardTeam]:
    """All teams that are resident at once."""
    for units in (8, 16, 32, 64):
        groups = limits.programs // (triton.cdiv(dims.H, units) * dims.D)
        if not groups:
            continue
        share = triton.cdiv(dims.N, groups)
        for rows in (8, 16, 32, 64, 128):
            chunks = triton.cdiv(share, rows)
            if chunks > 4 or (chunks > 1 and rows == 8):
                continue
            found = []
            if units >= 16 and rows <= 32:
                found = [
                    _narrow(dims, parts, limits.shared, rows, chunks, units, across, deepest)
                    for across in (1, 2, 4)
                    for deepest in (128, 32)
                    if units % (16 * across) == 0
                ]
            if limits.warpgroups and dims.H % CHUNK == 0 and dims.H >= WIDE_HIDDEN and rows >= 32:
                found.append(_wide(dims, parts, limits.shared + RESERVED, rows, chunks, units))
            yield from (team for team in found if team is not None)


def _narrow(
    dims: LstmDims, parts: int, shared: int, rows: int, chunks: int, units: int, across: int, deepest: int
) -> ForwardTeam | None:
    """The team with its weights as near as they fit; None if nothing fits."""
    warps = WARPS if across * dims.H >= 32 * WARPS else WARPS // 2  # a warp multiplies 32 deep at least
    depths, threads = warps // across, 32 * warps
    depth = triton.cdiv(dims.H, depths)
    deep = max(32, min(deepest // parts, triton.next_power_of_2(depth)))
    while deep > 32 and triton.cdiv(depth, deep) * deep > 1.15 * depth:
        deep //= 2
    subs = triton.cdiv(depth, deep)
    piece = depths * deep * 4 * units * 2  # bytes of weights
    sums = 4 * depths * units * rows // threads  # registers
    exchange = depths * units * rows * 16
    if subs > 12 or sums > 64 or exchange > shared:
        return None
    free = REGISTERS - OTHER_REGISTERS - sums - parts * subs * deep * rows // 64 - 5 * (chunks - 1)
    fits = max(0, min(parts * subs, free // (piece // (4 * threads))))
    kept, low_kept, rate = min(subs, fits), max(0, fits - subs), FETCH[Place.SHARED]
    fetched = (parts * subs - fits) * piece
    if fetched > shared - exchange:
        kept, low_kept, rate, fetched = -1, -1, READ, parts * subs * piece
        if parts * units * rows > 512:
            return None  # its registers would spill
    work = rows * 4 * units * depths * deep * subs * (4 if parts == 2 else 1)  # 3, and sums
    read = parts * rows * depth * depths * 2 * (1 + across) / 2
    each = read / READ + fetched / rate + work / MULTIPLY + 2 * exchange / EXCHANGE
    cells = triton.cdiv(units * rows, threads)
    cost = MEETING + chunks * (each + CELL * (cells - 1)) + ANOTHER_CHUNK * (chunks - 1)
    return ForwardTeam(rows, chunks, units, across, deep, subs, warps, kept, low_kept, cost)


def _wide(dims: LstmDims, parts: int, shared: int, rows: int, chunks: int, units: int) -> ForwardTeam | None:
    """A team whose products are made by warpgroups from shared memory, for many rows."""
    gates = 4 * units * parts
    if gates not in (64, 128):
        return None
    stages = min(6, (shared - gates * dims.H * 2 - gates * rows * 4) // (rows * CHUNK * 2))
    if stages < 4 or units * rows * chunks > 4096:
        return None
    read = parts * rows * dims.H * 2
    each = read / READ + WIDE_MULTIPLY + rows * WIDE_ROW + (chunks > 1) * WIDE_CHUNK
    each += (parts - 1) * dims.H / CHUNK * WIDE_SUM
    cost = MEETING + chunks * each + ANOTHER_CHUNK * (chunks - 1)
    return ForwardTeam(rows, chunks, units, 1, CHUNK, 1, WARPS, -1, -1, cost, stages)
