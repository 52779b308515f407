"""Which way a recurrence runs: the one that takes the fewest microseconds a step by the models below.

A way's folder lists the cuts of a problem that fit the device (`*cut.py`, geometry only). Here are the device's speeds
and the models that turn a cut into microseconds, for both passes. The constants were fitted to steps measured on an
H200; all they have to do is to rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import torch
import triton

from aclgrad.gpu.launch import INTERPRETING

from ..dims import LstmDims
from .fp16_split.products import FINE_SUM_LENGTH
from .limits import Limits
from .problem import Problem
from .recurrence.per_step.cut import PerStep, Product, per_step_backward, per_step_forward
from .recurrence.persistent.backward_cut import (
    WARPGROUP_UNITS,
    PersistentBackward,
    WeightsIn,
    persistent_backward,
    warp_depth,
)
from .recurrence.persistent.backward_cut import WARPS as BACKWARD_WARPS
from .recurrence.persistent.forward_cut import (
    TILE_K,
    PersistentForward,
    persistent_forward,
    sums_exchanged,
    weight_block,
)
from .recurrence.row_owner import cut as row_owner
from .recurrence.row_owner.cut import BLOCK_ROWS, RowOwner
from .recurrence.warp_specialised import cut as warp_specialised
from .recurrence.warp_specialised.cut import WarpSpecialisedBackward, WarpSpecialisedForward

Resident: TypeAlias = (
    "PersistentBackward | PersistentForward | RowOwner | WarpSpecialisedBackward | WarpSpecialisedForward"
)
Way: TypeAlias = "Resident | PerStep"

# What a program does in a microsecond
READ_RATE = 52e3
"""Bytes that it reads from memory."""

SHARED_WEIGHTS_RATE, EXCHANGE_RATE = 300e3, 200e3
"""Bytes of weights that it reads from shared memory; of sums that its warps exchange there."""

WARP_RATE, WARPGROUP_RATE, ROW_OWNER_RATE = 2.3e6, 4.6e6, 9.2e6
"""Half-precision multiplications by its warps, by its warpgroups, and by those of row owners."""

# Microseconds of a step
GRID_BARRIER, SECOND_GRID_BARRIER = 1.5, 1.8
"""Of a persistent grid at least; for the barrier of split-K on top."""

BACKWARD_ROW_BLOCK, FORWARD_ROW_BLOCK, FORWARD_CELL = 3.0, 0.3, 0.25
"""For every one of several row blocks, backward; forward for every further one; for every further h of a thread."""

WARPGROUP_PRODUCT, WARPGROUP_ROW, WARPGROUP_ROW_BLOCK, WARPGROUP_SUM = 1.7, 0.007, 5.0, 0.1
"""Forward, of a product by warpgroups on top of reading: at least, for every row, for every one of several row blocks,
and for every tile of the depth where operands are split."""

ROW_OWNER_BARRIERS, ROW_OWNER_BLOCK = 3.2, 0.36
"""Of row owners at least, and for every block of the depth."""

SPECIALISED_BACKWARD, SPECIALISED_ROW, SPECIALISED_BACKWARD_TILE = 9.2, 0.5, 0.56
"""Of warp-specialised row owners at least, for every further row that a program owns, and for every tile of the depth.
They fit what was measured for 1024 units with one row and for 192 units with four."""

SPECIALISED_FORWARD, SPECIALISED_FORWARD_TILE = 7.5, 0.8
"""Of warp-specialised pairs at least, and for every tile of the depth."""

HOST_LAUNCH, HOST_PRODUCT = 7.8, 13.5
"""Of the host, for a launch and for a product of the library: a step takes no less than its launches take the host."""


class StepTime(NamedTuple):
    """Of a step that is launched by itself: fixed, and for each of what it depends on.

    Lines fitted to steps measured at sizes drawn at random (`python -m benchmarks.ways`); they hold within a quarter.
    """

    fixed: float = 0.0
    direction: float = 0.0
    unit: float = 0.0  # of hidden units, the depth of products
    million_products: float = 0.0  # multiplications of δ · w_hh or w_hh · h
    million_weights: float = 0.0  # elements of w_hh
    thousand_elements: float = 0.0  # of dh or h

    def of(self, dims: LstmDims) -> float:
        """Microseconds."""
        weights, elements = dims.D * 4 * dims.H * dims.H, dims.D * dims.N * dims.H
        return (1 if dims.H % ALIGNED_UNITS == 0 else UNALIGNED) * (
            self.fixed
            + self.direction * dims.D
            + self.unit * dims.H
            + self.million_products * dims.N * weights / 1e6
            + self.million_weights * weights / 1e6
            + self.thousand_elements * elements / 1e3
        )


ALIGNED_UNITS, UNALIGNED = 8, 1.6
"""Hidden units whose multiples are read and multiplied 16 bytes at a time; how much longer other numbers take."""

STEP_TIMES = {  # by pass (forward or not), by whether operands are float32, and by who multiplies
    (True, False, Product.KERNEL): StepTime(3.23, 0.08, 0.0036, 0.0071, 0.0, 0.019),
    (True, False, Product.LIBRARY): StepTime(2.81, 3.39, 0.0013, 0.002, 0.157, 0.015),
    (True, True, Product.KERNEL): StepTime(4.37, 0.0, 0.0018, 0.049, 1.08, 0.005),
    (True, True, Product.LIBRARY): StepTime(0.0, 14.0, 0.021, 0.0002, 2.47, 0.056),
    (False, False, Product.KERNEL): StepTime(4.5, 0.04, 0.0174, 0.0092, 0.5, 0.028),
    (False, False, Product.LIBRARY): StepTime(1.35, 4.65, 0.0045, 0.0011, 0.0, 0.014),
    (False, True, Product.KERNEL): StepTime(3.91, 1.13, 0.034, 0.051, 1.08, 0.022),
    (False, True, Product.LIBRARY): StepTime(1.31, 7.09, 0.0139, 0.039, 0.0, 0.12),  # few were measured
    (False, True, Product.SPLIT_LIBRARY): StepTime(4.11, 2.62, 0.0026, 0.030, 1.75, 0.019),
}

CACHE, BEYOND_CACHE = 40e6, 2.5
"""Bytes of weights that stay in the device's cache from step to step; how much longer it takes to read more."""


@dataclass(frozen=True)
class Candidate:
    """The best cut of a way, and its modelled microseconds a step."""

    way: Way
    microseconds: float


@dataclass(frozen=True)
class Choice:
    """The way that runs, its modelled microseconds a step, and the best of the other ways, if there is one."""

    way: Way
    microseconds: float
    runner_up: Candidate | None = None

    def describe(self) -> str:
        """In words, such as `persistent grid, 64 rows × 16 units, …, 5.2 µs a step modelled; per step: 9.8`."""
        text = f"{self.way.describe()}, {self.microseconds:.1f} µs a step modelled"
        other = self.runner_up
        return text if other is None else f"{text}; {other.way.name}: {other.microseconds:.1f}"


def choose(problem: Problem, *, precise: bool = True, split_delta: bool = False) -> Choice:
    """The cheapest way for a problem of either pass.

    `split_delta` tells that the gate gradients may be left split, as row owners leave them. Only launches per step and
    persistent grids can start rows anew.
    """
    dims = problem.dims
    resident = not INTERPRETING and min(dims.T, dims.N, dims.H) > 0 and problem.max_offset < 2**31
    limits, resets = Limits.of(problem.device) if resident else None, problem.anew is not None
    if problem.forward:
        candidates = forward_candidates(dims, problem.split(precise), limits, specialised=not resets)
    else:
        candidates = backward_candidates(dims, problem.dtype, limits, split_delta=split_delta and not resets)
    return cheapest(candidates)


def cheapest(candidates: list[Candidate]) -> Choice:
    """The cheapest; of equals the first."""
    first, *others = sorted(candidates, key=lambda candidate: candidate.microseconds)
    runner_up = next((candidate for candidate in others if candidate.way.name != first.way.name), None)
    return Choice(first.way, first.microseconds, runner_up)


def backward_candidates(
    dims: LstmDims, dtype: torch.dtype, limits: Limits | None, *, split_delta: bool = True
) -> list[Candidate]:
    """The best of each way for the gradient, the preferred one of equals first; launches per step by who multiplies."""
    found: list[Candidate | None] = []
    if limits is not None:
        if split_delta and row_owner.takes(dims, dtype, limits):
            specialised = warp_specialised.warp_specialised_backward(dims, limits)
            found += [
                best(row_owner.row_owner(dims, limits), lambda cut: row_owner_us(cut, dims)),
                best(specialised, lambda cut: specialised_backward_us(cut, dims)),
            ]
        size = dtype.itemsize
        found.append(best(persistent_backward(dims, size, limits), lambda cut: persistent_backward_us(cut, dims, size)))
    for way in per_step_backward(dims, dtype):
        found.append(Candidate(way, per_step_us(way, dims, forward=False, float32=dtype == torch.float32)))
    return [candidate for candidate in found if candidate is not None]


def forward_candidates(dims: LstmDims, split: int, limits: Limits | None, specialised: bool = True) -> list[Candidate]:
    """The best of each way for the forward pass, the preferred one of equals first; operands have `split` parts."""
    found: list[Candidate | None] = [
        Candidate(way, per_step_us(way, dims, forward=True, float32=split == 2)) for way in per_step_forward(dims)
    ]
    if limits is not None and dims.T > 1:
        cuts = warp_specialised.warp_specialised_forward(dims, split, limits) if specialised else ()
        found += [
            best(persistent_forward(dims, split, limits), lambda cut: persistent_forward_us(cut, dims, split)),
            best(cuts, lambda cut: specialised_forward_us(cut, dims)),
        ]
    return [candidate for candidate in found if candidate is not None]


Cut = TypeVar("Cut", PersistentBackward, PersistentForward, RowOwner, WarpSpecialisedBackward, WarpSpecialisedForward)


def best(cuts: Iterable[Cut], microseconds: Callable[[Cut], float]) -> Candidate | None:
    """The cheapest of the cuts of one way, if there are any."""
    priced = [Candidate(cut, microseconds(cut)) for cut in cuts]
    return min(priced, key=lambda candidate: candidate.microseconds, default=None)


def beyond_cache(dims: LstmDims, itemsize: int) -> float:
    """How much longer it takes to read all weights at every step than it takes from the device's cache."""
    return BEYOND_CACHE if dims.D * 4 * dims.H * dims.H * itemsize > CACHE else 1.0


def persistent_backward_us(cut: PersistentBackward, dims: LstmDims, itemsize: int) -> float:
    """Barriers; gate gradients and partial sums read, weights fetched, products made for every row block."""
    rows, units = cut.rows, cut.units
    barriers = GRID_BARRIER + (cut.split_k > 1) * SECOND_GRID_BARRIER
    partial_sums = (cut.split_k > 1) * 3 * units * rows * 4
    if cut.weights_in is WeightsIn.SHARED_FOR_WARPGROUPS:
        depth = 4 * dims.H // cut.split_k
        read = rows * depth * 2 + partial_sums
        return barriers + read / READ_RATE + rows * WARPGROUP_UNITS * depth / WARPGROUP_RATE
    depth = warp_depth(dims, cut.split_k)
    read = rows * depth * BACKWARD_WARPS * itemsize + partial_sums
    work = rows * units * depth * BACKWARD_WARPS * (6 if itemsize == 4 else 1)
    fetched = BACKWARD_WARPS * cut.block_k * cut.k_blocks * units * itemsize
    memory_rate = READ_RATE / beyond_cache(dims, itemsize)
    rates = {WeightsIn.REGISTERS: math.inf, WeightsIn.SHARED: SHARED_WEIGHTS_RATE, WeightsIn.MEMORY: memory_rate}
    each = read / READ_RATE + work / WARP_RATE + (cut.row_blocks > 1) * BACKWARD_ROW_BLOCK
    return barriers + cut.row_blocks * (each + fetched / rates[cut.weights_in])


def persistent_forward_us(cut: PersistentForward, dims: LstmDims, split: int) -> float:
    """A barrier; h read, weights fetched, products made and sums exchanged for every row block."""
    rows, units, blocks = cut.rows, cut.units, cut.row_blocks
    if cut.stages:
        each = split * rows * dims.H * 2 / READ_RATE + WARPGROUP_PRODUCT + rows * WARPGROUP_ROW
        each += (blocks > 1) * WARPGROUP_ROW_BLOCK
        each += (split - 1) * dims.H / TILE_K * WARPGROUP_SUM
        return GRID_BARRIER + blocks * each + FORWARD_ROW_BLOCK * (blocks - 1)
    k_warps = cut.warps // cut.unit_warps
    depth: int = triton.cdiv(dims.H, k_warps)
    block = weight_block(k_warps, cut.block_k, units)
    kept = max(0, cut.kept) + max(0, cut.low_kept)
    memory_rate = READ_RATE / beyond_cache(dims, 2 * split)
    fetched, rate = (split * cut.k_blocks - kept) * block, memory_rate if cut.kept < 0 else SHARED_WEIGHTS_RATE
    work = rows * 4 * units * k_warps * cut.block_k * cut.k_blocks * (4 if split == 2 else 1)  # 3, and sums
    read = split * rows * depth * k_warps * 2 * (1 + cut.unit_warps) / 2
    exchange = sums_exchanged(k_warps, units, rows)
    each = read / READ_RATE + fetched / rate + work / WARP_RATE + 2 * exchange / EXCHANGE_RATE
    cells: int = triton.cdiv(units * rows, 32 * cut.warps)
    return GRID_BARRIER + blocks * (each + FORWARD_CELL * (cells - 1)) + FORWARD_ROW_BLOCK * (blocks - 1)


def row_owner_us(cut: RowOwner, dims: LstmDims) -> float:
    """Two barriers; gate gradients and products read, and made by warpgroups."""
    rows, depth = cut.rows, 4 * dims.H // cut.split_k
    read = 4 * rows * depth + 8 * row_owner.UNITS * rows + 4 * cut.rows_owned * cut.split_k * dims.H
    return (
        ROW_OWNER_BARRIERS
        + rows // min(rows, BLOCK_ROWS) * (depth // cut.block_k) * ROW_OWNER_BLOCK
        + read / READ_RATE
        + 3 * rows * row_owner.UNITS * depth / ROW_OWNER_RATE
    )


def specialised_backward_us(cut: WarpSpecialisedBackward, dims: LstmDims) -> float:
    """Rows owned one after the other, tiles multiplied, products added up."""
    tiles = 4 * dims.H // cut.split_k // warp_specialised.TILE_K
    blocks: int = triton.cdiv(cut.rows, warp_specialised.CONSUMERS * warp_specialised.TILE_ROWS)
    return (
        SPECIALISED_BACKWARD
        + (cut.rows_owned - 1) * SPECIALISED_ROW
        + blocks * tiles * SPECIALISED_BACKWARD_TILE
        + 4 * cut.rows_owned * cut.split_k * dims.H / READ_RATE
    )


def specialised_forward_us(cut: WarpSpecialisedForward, dims: LstmDims) -> float:  # noqa: ARG001  there is one cut
    """Tiles multiplied."""
    return SPECIALISED_FORWARD + warp_specialised.forward_tiles(dims) * SPECIALISED_FORWARD_TILE


def per_step_us(way: PerStep, dims: LstmDims, *, forward: bool, float32: bool) -> float:
    """The line of who multiplies, and no less than the host takes."""
    host = HOST_LAUNCH
    if way.product is not Product.KERNEL:
        pieces = 2 + math.ceil(dims.H / FINE_SUM_LENGTH) if forward and float32 else 1
        host += dims.D * pieces * HOST_PRODUCT
    return max(host, STEP_TIMES[forward, float32, way.product].of(dims))
