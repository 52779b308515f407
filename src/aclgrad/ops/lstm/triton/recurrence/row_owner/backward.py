"""Which relay of programs runs a recurrence in float32, and its launch; see `triton_relay`, `triton_relay_streams`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import Kernel

from ....spec import LstmDims
from ...choose import READ, RESERVED, RINGS, SLICE, WARPS, WIDE_MULTIPLY, WIDE_UNITS, Limits
from ...fp16_split.products import Parts
from ...problem import ByPrecision, Problem
from ..per_step.split_products import Weights

if TYPE_CHECKING:
    from aclgrad.gpu.hopper import BulkKernel

LEAST_ROWS, MOST_ROWS, BLOCK = 16, 256, 128
"""Rows of a group, and how many of them are multiplied at a time."""

MOST_OWNED = 2048
"""Elements of rows that a program can own, of each stream where there are streams."""

MOST_STAGES = 3
MEETINGS, CHUNK = 3.2, 0.36
"""Microseconds a step costs at least, and for every chunk of the depth on top."""

MULTIPLY = 2 * WIDE_MULTIPLY
"""Half-precision multiplications in a microsecond."""

STREAMS, STREAM_BLOCK, MULTIPLIERS = 2, 64, 2
"""Streams of a group, rows that are multiplied at a time, and by how many warp groups side by side."""

MOST_ROWS_OWNED = 4
"""Rows of a stream that a program can own: they are written out one by one."""

STREAM_STEP, STREAM_ROW, STREAM_SLICE = 9.2, 3.0, 0.56
"""Microseconds of a step in streams, for every further row that a program owns, and every slice of a product. With one
row they fit what was measured for 1024 units; the second is a guess to be on the safe side."""


@dataclass(frozen=True)
class Relay:
    """How a recurrence is cut. `cost` is a guess at the microseconds of a step."""

    rows: int
    own: int
    parts: int
    chunk: int
    stages: int
    cost: float

    def grid(self, dims: LstmDims) -> tuple[int, int]:
        """Slices of units · parts, groups of rows."""
        return dims.H // WIDE_UNITS * self.parts, triton.cdiv(dims.N, self.rows)

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {
            "H": dims.H, "WIDTH": triton.next_power_of_2(dims.H), "ROWS": self.rows, "OWN": self.own,
            "PARTS": self.parts, "CHUNK": self.chunk, "STAGES": self.stages, "WARPS": WARPS,
        }  # fmt: skip

    def kernel(self, problem: Problem, precise: bool) -> Kernel:
        """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""
        from .backward_kernel import relay as function

        return Kernel(
            function, self.grid(problem.dims), problem.device, _dtypes(problem), problem.numbers,
            {**self.constants(problem.dims), "PRECISE": precise}, num_warps=WARPS, maxnreg=255,
            launch_cooperative_grid=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Streams:
    """How a recurrence is cut into streams of `rows`, two a group. `cost` is a guess at the microseconds of a step.

    Sums begin anew after `piece` slices of the depth.
    """

    rows: int
    own: int
    parts: int
    piece: int
    cost: float

    def grid(self, dims: LstmDims) -> tuple[int, int]:
        """Slices of units · parts, groups of two streams."""
        return dims.H // WIDE_UNITS * self.parts, triton.cdiv(dims.N, STREAMS * self.rows)

    def constants(self, dims: LstmDims) -> dict[str, Any]:
        """The kernel's."""
        return {
            "H": dims.H, "WIDTH": triton.next_power_of_2(dims.H), "ROWS": self.rows, "OWN": self.own,
            "PARTS": self.parts, "PIECE": self.piece,
        }  # fmt: skip

    def kernel(self, problem: Problem, precise: bool) -> BulkKernel:
        """The same; gate gradients are copied from matrices with a row for one of the batch at a step, or at all."""
        from aclgrad.gpu.hopper import Block, BulkKernel

        from ..warp_specialised.backward_kernel import REGISTERS, relay_in_streams

        dims, (_, width) = problem.dims, problem.strides[-1]
        matrix = Block((dims.T * dims.N * 4 * dims.H // width, width), width, (STREAM_BLOCK, SLICE), torch.float16)
        return BulkKernel(
            relay_in_streams, (*self.grid(dims), 1), problem.device, (matrix, matrix), _dtypes(problem),
            problem.numbers, {**self.constants(dims), "PRECISE": precise}, num_warps=4, maxnreg=REGISTERS,
            launch_cooperative_grid=True,
        )  # fmt: skip


def best_relay(dims: LstmDims, dtype: torch.dtype, limits: Limits | None) -> Relay | Streams | None:
    """The cheapest relay that is resident at once, if there is one."""
    if limits is None or not limits.warpgroups or dtype != torch.float32 or dims.H % WIDE_UNITS or dims.D > 1:
        return None
    every: list[Relay | Streams] = [*relays(dims, limits), *streams(dims, limits)]
    return min(every, key=lambda relay: relay.cost, default=None)


def relays(dims: LstmDims, limits: Limits) -> Iterator[Relay]:
    """All relays that are resident at once and do one thing after the other."""
    for parts in (1, 2, 4, 8, 16, 32):
        members, depth = dims.H // WIDE_UNITS * parts, 4 * dims.H // parts
        if members > limits.programs or depth % 32:
            continue
        groups = limits.programs // members
        rows = max(LEAST_ROWS, triton.next_power_of_2(triton.cdiv(dims.N, groups)))
        own = triton.cdiv(rows, members)
        if rows > MOST_ROWS or own * triton.next_power_of_2(dims.H) > MOST_OWNED:
            continue
        for chunk in (64, 32):
            stages = min(MOST_STAGES, (limits.shared - 4 * WIDE_UNITS * depth) // (4 * min(rows, BLOCK) * chunk))
            if depth % chunk == 0 and stages >= 2:
                read = 4 * rows * depth + 8 * WIDE_UNITS * rows + 4 * own * parts * dims.H
                cost = (
                    MEETINGS
                    + rows // min(rows, BLOCK) * (depth // chunk) * CHUNK
                    + read / READ
                    + 3 * rows * WIDE_UNITS * depth / MULTIPLY
                )
                yield Relay(rows, own, parts, chunk, stages, cost)
                break


def streams(dims: LstmDims, limits: Limits) -> Iterator[Streams]:
    """All relays in streams that are resident at once, with work for every warp group that multiplies."""
    slices = 4 * dims.H // SLICE
    for parts in (parts for parts in range(1, slices + 1) if slices % parts == 0):
        members, depth = dims.H // WIDE_UNITS * parts, 4 * dims.H // parts
        if 4 * WIDE_UNITS * depth + RINGS > limits.shared + RESERVED:
            continue
        for groups in range(1, limits.programs // members + 1):
            rows = triton.cdiv(dims.N, STREAMS * groups)
            own = triton.cdiv(rows, members)
            of_last = dims.N - (STREAMS * groups - 1) * rows
            fits = own <= MOST_ROWS_OWNED and own * triton.next_power_of_2(dims.H) <= MOST_OWNED
            if fits and of_last > (MULTIPLIERS - 1) * STREAM_BLOCK:
                blocks = triton.cdiv(rows, MULTIPLIERS * STREAM_BLOCK)
                cost = (
                    STREAM_STEP
                    + (own - 1) * STREAM_ROW
                    + blocks * (depth // SLICE) * STREAM_SLICE
                    + 4 * own * parts * dims.H / READ
                )
                yield Streams(rows, own, parts, 2 - depth // SLICE % 2, cost)


class RelayOfPrograms:
    """One launch."""

    def __init__(self, problem: Problem, relay: Relay | Streams, scratch: Scratch, parts: Parts) -> None:
        from ..persistent.backward_tiles import LINE

        dims, self.parts, self.in_streams = problem.dims, parts, isinstance(relay, Streams)
        members, groups = relay.grid(dims)
        self.groups = members * groups
        self.sums = scratch.tensor((self.groups, 4 * dims.H), torch.float32)
        self.peaks = scratch.tensor((dims.T * dims.N,), torch.int32)
        self.weights = Weights(dims, problem.device, scratch, twice=False)
        if self.in_streams:
            groups *= STREAMS
        self.partial = scratch.tensor((groups * relay.rows * relay.parts * dims.H,), torch.float32)
        self.counters = scratch.tensor((groups * 2 * LINE.value,), torch.int32)
        self.kernel: ByPrecision[Callable[..., None]] = ByPrecision(problem, partial(relay.kernel, problem))

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, w_hh: Piece, operands: Sequence[Any]) -> None:  # noqa: ARG002
        """Compute; see `Recurrence`."""
        workspace[self.counters.offset : self.counters.offset + self.counters.nbytes].zero_()
        self.weights(workspace, placed(w_hh, workspace), precise=self.kernel.precise)
        high, low = self.parts.high, self.parts.low
        first = [placed(piece, workspace) for piece in (high, self.weights.halves)]
        pieces = (low, self.sums, self.partial, self.peaks, self.weights.peak, self.counters)
        matrices = ([high.view(workspace), low.view(workspace)],) if self.in_streams else ()
        self.kernel.now()(*matrices, *first, *operands, *(placed(piece, workspace) for piece in pieces))


def _dtypes(problem: Problem) -> tuple[torch.dtype | None, ...]:
    """Of a relay's pointers."""
    half = torch.float16
    return (half, half, *problem.dtypes[2:], half, *(torch.float32,) * 2, *(torch.int32,) * 3)
