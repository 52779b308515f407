"""Which relay of programs runs a recurrence in float32, and its launch; see `triton_relay`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from ...core.memory import Piece, Scratch
from ...gpu.addresses import placed
from ...gpu.launch import Kernel
from .spec import LstmDims
from .triton_halves import Weights
from .triton_problem import ByPrecision, Problem
from .triton_products import Parts
from .triton_teams import READ, WARPS, WIDE_MULTIPLY, WIDE_UNITS, Limits

LEAST_ROWS, MOST_ROWS, BLOCK = 16, 256, 128
"""Rows of a group, and how many of them are multiplied at a time."""

MOST_OWNED = 2048
"""Elements of rows that a program can own."""

MOST_STAGES = 3
MEETINGS, CHUNK = 3.2, 0.36
"""Microseconds a step costs at least, and for every chunk of the depth on top."""

MULTIPLY = 2 * WIDE_MULTIPLY
"""Half-precision multiplications in a microsecond."""


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


def best_relay(dims: LstmDims, dtype: torch.dtype, limits: Limits | None) -> Relay | None:
    """The cheapest relay that is resident at once, if there is one."""
    if limits is None or not limits.warpgroups or dtype != torch.float32 or dims.H % WIDE_UNITS or dims.D > 1:
        return None
    return min(relays(dims, limits), key=lambda relay: relay.cost, default=None)


def relays(dims: LstmDims, limits: Limits) -> Iterator[Relay]:
    """All relays that are resident at once."""
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


class RelayOfPrograms:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    def __init__(self, problem: Problem, relay: Relay, scratch: Scratch, parts: Parts) -> None:
        from .triton_relay import relay as kernel
        from .triton_team_parts import LINE

        dims = problem.dims
        grid = relay.grid(dims)
        members, groups = grid
        self.groups = members * groups
        self.sums = scratch.tensor((self.groups, 4 * dims.H), torch.float32)
        self.peaks = scratch.tensor((dims.T * dims.N,), torch.int32)
        self.parts = parts
        self.weights = Weights(dims, problem.device, scratch, twice=False)
        self.partial = scratch.tensor((groups * relay.rows * relay.parts * dims.H,), torch.float32)
        self.counters = scratch.tensor((groups * 2 * LINE.value,), torch.int32)
        half = torch.float16

        def make(precise: bool) -> Kernel:
            return Kernel(
                kernel, grid, problem.device,
                (half, half, *problem.dtypes[2:], half, *(torch.float32,) * 2, *(torch.int32,) * 3),
                problem.numbers, {**relay.constants(dims), "PRECISE": precise},
                num_warps=WARPS, maxnreg=255, launch_cooperative_grid=True,
            )  # fmt: skip

        self.kernel = ByPrecision(problem, make)

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, w_hh: Piece, operands: Sequence[Any]) -> None:  # noqa: ARG002
        """Compute; see `Recurrence`."""
        workspace[self.counters.offset : self.counters.offset + self.counters.nbytes].zero_()
        self.weights(workspace, placed(w_hh, workspace), precise=self.kernel.precise)
        first = [placed(piece, workspace) for piece in (self.parts.high, self.weights.halves)]
        pieces = (self.parts.low, self.sums, self.partial, self.peaks, self.weights.peak, self.counters)
        self.kernel.now()(*first, *operands, *(placed(piece, workspace) for piece in pieces))
