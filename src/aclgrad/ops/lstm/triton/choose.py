"""Which team of programs runs a recurrence: the cheapest that fits the device, by a model of a step's time.

The model's constants were fitted to steps measured on an H200; all they have to do is to rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import triton

from aclgrad.gpu.launch import is_hopper, multiprocessors, runs_gluon

from ..spec import LstmDims

WARPS = 8
REGISTERS = 128
"""Registers of a thread that weights may fill, of 255."""

RESERVED = 7 * 1024
"""Bytes of shared memory that are not for weights and exchange."""

MEETING, SECOND_MEETING, CHUNK = 1.5, 1.8, 3.0
"""Microseconds a step costs at least; for partial sums on top; for every chunk of rows on top."""

READ, MULTIPLY, WIDE_MULTIPLY = 52e3, 2.3e6, 4.6e6
"""Bytes a program reads, half-precision multiplications it does by warps or by warpgroups in a microsecond."""

WIDE_UNITS = 64
"""Units of a slice whose products warpgroups make."""

SLICE, RINGS = 64, 96 * 1024
"""Terms of the depth in a tile of a ring, bytes of both rings; see `triton_rings`."""

WIDE_ROWS = 64
"""Rows, or twice as many, with which that pays."""


class Place(Enum):
    """Where a program has its part of w_hh."""

    REGISTERS = 0
    SHARED = 1
    MEMORY = 2
    SHARED_WIDE = 3


FETCH = {Place.REGISTERS: math.inf, Place.SHARED: 300e3, Place.MEMORY: READ}
"""Bytes of weights a program reads in a microsecond."""


@dataclass(frozen=True)
class Team:
    """How a recurrence is cut; see `triton_team`. `cost` is a guess at the microseconds of a step."""

    rows: int
    chunks: int
    units: int
    parts: int
    deep: int
    subs: int
    place: Place
    cost: float
    warps: int = WARPS
    stages: int = 1

    def grid(self, dims: LstmDims) -> tuple[int, int, int]:
        """Slices · parts, groups of rows, directions."""
        return triton.cdiv(dims.H, self.units) * self.parts, triton.cdiv(dims.N, self.rows * self.chunks), dims.D

    def constants(self, dims: LstmDims, dtype: torch.dtype) -> dict[str, Any]:
        """The kernel's."""
        return {
            "H": dims.H, "ROWS": self.rows, "CHUNKS": self.chunks, "UNITS": self.units, "PARTS": self.parts,
            "DEEP": self.deep, "SUBS": self.subs, "WARPS": self.warps, "VECTOR": 16 // dtype.itemsize,
            "PLACE": self.place.value, "STAGES": self.stages,
        }  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What a device has room for: programs at once, bytes of shared memory in each; whether it has warpgroups."""

    programs: int
    shared: int
    warpgroups: bool

    @staticmethod
    def of(device: torch.device) -> Limits | None:
        """Of a device; None if it has no teams, which are written in Gluon."""
        if not runs_gluon(device):
            return None
        shared = triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
        return Limits(multiprocessors(device), shared - RESERVED, is_hopper(device))


def best_team(dims: LstmDims, dtype: torch.dtype, limits: Limits | None) -> Team | None:
    """The cheapest team that is resident at once, if there is one."""
    if limits is None:
        return None
    return min(teams(dims, dtype.itemsize, limits), key=lambda team: team.cost, default=None)


def teams(dims: LstmDims, itemsize: int, limits: Limits) -> Iterator[Team]:
    """All teams that are resident at once."""
    programs = limits.programs
    for units in (16, 32, 64):
        for parts in (1, 2, 4):
            members = triton.cdiv(dims.H, units) * parts * dims.D
            if units // parts < 8 or members > programs:
                continue
            groups = programs // members
            share = triton.cdiv(dims.N, groups)
            for rows in (8, 16, 32):
                chunks = triton.cdiv(share, rows)
                if (chunks == 1 or rows >= 16) and chunks <= 4:
                    team = _fitted(dims, itemsize, limits.shared, rows, chunks, units, parts)
                    if team is not None:
                        yield team
            if units == WIDE_UNITS and itemsize == 2 and limits.warpgroups and share > WIDE_ROWS // 2:
                wide = _wide(dims, limits.shared, triton.next_power_of_2(share), parts)
                if wide is not None:
                    yield wide


def _fitted(dims: LstmDims, itemsize: int, shared: int, rows: int, chunks: int, units: int, parts: int) -> Team | None:
    """The team with its weights as near as they fit; None if nothing fits."""
    depth = triton.cdiv(triton.cdiv(4 * dims.H, parts), WARPS)  # of a warp
    least = 64 // itemsize
    deep = min(256 if itemsize == 2 else 64, triton.next_power_of_2(max(depth, least)))
    while deep > least and triton.cdiv(depth, deep) * deep > 1.15 * depth:
        deep //= 2
    subs = triton.cdiv(depth, deep)
    weights = WARPS * deep * subs * units * itemsize
    exchange = WARPS * units * rows * 4
    if exchange > shared or subs > 16 or units * rows > 2048:
        return None
    room = WARPS * 32 * 4 * (REGISTERS if itemsize == 2 else REGISTERS // 2)  # float32 is taken apart in registers
    place = Place.REGISTERS if weights <= room else Place.SHARED if weights + exchange <= shared else Place.MEMORY
    read = rows * depth * WARPS * itemsize + (parts > 1) * 3 * units * rows * 4
    work = rows * units * depth * WARPS * (6 if itemsize == 4 else 1)
    if place is Place.MEMORY and itemsize == 4 and units * rows > 512:
        return None  # its registers would spill
    each = read / READ + work / MULTIPLY + (chunks > 1) * CHUNK + weights / FETCH[place]
    return Team(rows, chunks, units, parts, deep, subs, place, MEETING + (parts > 1) * SECOND_MEETING + chunks * each)


def _wide(dims: LstmDims, shared: int, rows: int, parts: int) -> Team | None:
    """A team whose products are made by warpgroups from shared memory, for half precision and many rows."""
    depth = 4 * dims.H // parts
    stages = 3 if rows == 128 else 4
    weights, passing = WIDE_UNITS * depth * 2, stages * rows * 128
    if rows > 2 * WIDE_ROWS or 4 * dims.H % (64 * parts) or weights + passing + WIDE_UNITS * rows * 4 > shared:
        return None
    deep = (depth // WARPS) & -(depth // WARPS)
    read = rows * depth * 2 + (parts > 1) * 3 * WIDE_UNITS * rows * 4
    cost = MEETING + (parts > 1) * SECOND_MEETING + read / READ + rows * WIDE_UNITS * depth / WIDE_MULTIPLY
    return Team(rows, 1, WIDE_UNITS, parts, deep, depth // WARPS // deep, Place.SHARED_WIDE, cost, WARPS, stages)
