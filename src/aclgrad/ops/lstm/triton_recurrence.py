"""How the steps of a layer are run: by one resident grid where that is possible and pays, else by a launch a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import triton

from ...core.memory import Piece, Scratch
from ...gpu.addresses import placed
from ...gpu.launch import INTERPRETING, Kernel
from ...gpu.products import multiply
from .spec import LstmDims
from .triton_move import Strides
from .triton_step import advance
from .triton_teams import Limits, Team, best_team, steps_cost


class Recurrence(Protocol):
    """From the saved activations to the gate gradients of all steps and the gradients of the initial states."""

    @property
    def groups(self) -> int:
        """Rows of `sums`."""

    @property
    def sums(self) -> Piece | None:
        """[groups, D · 4H]: sums of gate gradients that add up to the bias gradients, if they fall off."""

    def __call__(self, workspace: torch.Tensor, delta: Piece, w_hh: Piece, operands: Sequence[Any]) -> None:
        """Compute delta with w_hh [D, H, 4H]; the operands stand in the order of the kernels' further parameters."""


@dataclass(frozen=True)
class Problem:
    """What a recurrence is made for.

    `present` tells of dy, dh, dc, dh_prev, dc_prev which are there; `strides` are those of the saved activations, c0,
    dy and the states (direction, row, unit), then of the gate gradients (step, row).
    """

    dims: LstmDims
    dtype: torch.dtype
    device: torch.device
    present: tuple[bool, ...]
    strides: tuple[Strides, ...]

    @property
    def dtypes(self) -> tuple[torch.dtype | None, ...]:
        """Of all pointers up to `sizes`."""
        optional = [self.dtype if there else None for there in self.present]
        return (*(self.dtype,) * 15, *optional, torch.int64 if self.dims.variable else None)

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers of every kernel."""
        return (self.dims.T, self.dims.N, *self.strides)

    @property
    def reach(self) -> int:
        """The largest offset within one step."""
        batch, width = self.dims.N, self.dims.D * self.dims.H
        *others, (_, gates_row) = self.strides
        reaches = [abs(of[0]) + batch * abs(of[1]) + width * abs(of[-1]) for of in others]
        return max(*reaches, batch * gates_row + 4 * width)


def recurrence(problem: Problem, scratch: Scratch) -> Recurrence:
    """The best way for these sizes."""
    dims = problem.dims
    if not INTERPRETING and dims.T and dims.N and dims.H and problem.reach < 2**31:
        team = best_team(dims, problem.dtype, Limits.of(problem.device))
        if team is not None and team.cost < steps_cost(dims, problem.dtype):
            return TeamOfPrograms(problem, team, scratch)
    return Steps(problem, scratch)


class ByPrecision:
    """A kernel that multiplies float32 as torch's switch for matrix products says at the time of the call."""

    def __init__(self, problem: Problem, make: Any) -> None:
        self._make = make
        self._float32 = problem.dtype == torch.float32
        self._kernels: dict[bool, Kernel] = {}
        self.now()

    def now(self) -> Kernel:
        """The kernel for the switch as it stands."""
        precise = not (self._float32 and torch.backends.cuda.matmul.allow_tf32)
        if precise not in self._kernels:
            self._kernels[precise] = self._make(precise)
        return self._kernels[precise]


class TeamOfPrograms:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    def __init__(self, problem: Problem, team: Team, scratch: Scratch) -> None:
        from .triton_team import recur
        from .triton_team_parts import LINE

        dims = problem.dims
        grid = team.grid(dims)
        members, self.groups, _ = grid
        cells = members * self.groups * dims.D * team.chunks
        self.sums = scratch.tensor((self.groups, dims.D * 4 * dims.H), torch.float32)
        self.partial = scratch.tensor((cells * team.units * team.rows if team.parts > 1 else 1,), torch.float32)
        self.counters = scratch.tensor((self.groups * dims.D * team.chunks * (members + 1) * LINE.value,), torch.int32)

        def make(precise: bool) -> Kernel:
            return Kernel(
                recur, grid, problem.device, (*problem.dtypes, torch.float32, torch.float32, torch.int32),
                problem.numbers, {**team.constants(dims, problem.dtype), "PRECISE": precise},
                num_warps=team.warps, maxnreg=255, launch_cooperative_grid=True,
            )  # fmt: skip

        self.kernel = ByPrecision(problem, make)

    def __call__(self, workspace: torch.Tensor, delta: Piece, w_hh: Piece, operands: Sequence[Any]) -> None:
        """Compute; see `Recurrence`."""
        workspace[self.counters.offset : self.counters.offset + self.counters.nbytes].zero_()
        mine = [placed(piece, workspace) for piece in (delta, w_hh, self.sums, self.partial, self.counters)]
        self.kernel.now()(*mine[:2], *operands, *mine[2:])


class Steps:
    """A launch a step, and a library's product where the batch is large enough to be worth one."""

    groups = 0
    sums = None

    def __init__(self, problem: Problem, scratch: Scratch) -> None:
        dims = problem.dims
        self.dims = dims
        self.carry = scratch.tensor((2, dims.D, dims.N, dims.H), torch.float32)
        self.clock = scratch.tensor((dims.T + 1, 4), torch.int32)  # a line of 16 bytes a step keeps addresses aligned
        self.products: Piece | None = None
        rows, units = max(16, min(64, triton.next_power_of_2(dims.N))), 32
        if not INTERPRETING and dims.N >= 32:
            self.products = scratch.tensor((dims.D, dims.N, dims.H), torch.float32)
            rows = 8
        self.gates_of = problem.strides[-1]

        def make(precise: bool) -> Kernel:
            return Kernel(
                advance,
                (triton.cdiv(dims.H, units), triton.cdiv(dims.N, rows), dims.D),
                problem.device,
                (*problem.dtypes, torch.float32, torch.float32 if self.products else None, torch.int32),
                problem.numbers,
                {
                    "H": dims.H, "ROWS": rows, "UNITS": units, "DEEP": 64, "WIDEN": INTERPRETING,
                    "PRECISION": "tf32x3" if precise else "tf32",
                },
                num_warps=4 if self.products is None else 2,
            )  # fmt: skip

        self.kernel = ByPrecision(problem, make)

    def __call__(self, workspace: torch.Tensor, delta: Piece, w_hh: Piece, operands: Sequence[Any]) -> None:
        """One launch a step and one for the initial states; see `Recurrence`."""
        carry, clock, dims = self.carry.view(workspace), self.clock.view(workspace), self.dims
        torch.arange(clock.numel(), out=clock.view(-1))
        kernel = self.kernel.now()
        products = None if self.products is None else self.products.view(workspace)
        gradients, weights = delta.view(workspace), w_hh.view(workspace)
        gates = gradients.as_strided(
            (dims.D, dims.T, dims.N, 4 * dims.H), (4 * dims.H, self.gates_of[0], self.gates_of[1], 1)
        )
        chains = [
            (of if d else of[::-1], weights[d].t(), products[d])
            for d, of in enumerate([chain.unbind() for chain in gates])
            if products is not None
        ]
        for step, now in enumerate(clock.unbind()):
            for steps, turned, out in chains if step else ():
                multiply(out, steps[step - 1], turned)
            kernel(gradients, weights, *operands, carry, products, now)
