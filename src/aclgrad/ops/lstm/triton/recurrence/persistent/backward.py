"""How the steps of a layer are run: by one resident grid where that is possible and pays, else by a launch a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import INTERPRETING, Kernel

from ...choose import Limits, Team, best_team
from ...fp16_split.products import Parts
from ...problem import ByPrecision, Problem, Recurrence
from ..per_step.backward import Steps, steps_cost
from ..row_owner.backward import RelayOfPrograms, best_relay


def recurrence(problem: Problem, scratch: Scratch, parts: Parts | None) -> Recurrence:
    """The best way for these sizes; `parts` is where the gate gradients may be left in parts."""
    dims = problem.dims
    if not INTERPRETING and dims.T and dims.N and dims.H and problem.reach < 2**31:
        limits = Limits.of(problem.device)
        team = best_team(dims, problem.dtype, limits)
        relay = None if parts is None else best_relay(dims, problem.dtype, limits)
        costs = [math.inf if way is None else way.cost for way in (team, relay)]
        least = min(*costs, steps_cost(dims, problem.dtype))
        if relay is not None and parts is not None and relay.cost == least:
            return RelayOfPrograms(problem, relay, scratch, parts)
        if team is not None and team.cost == least:
            return TeamOfPrograms(problem, team, scratch)
    return Steps(problem, scratch)


class TeamOfPrograms:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    peaks = None

    def __init__(self, problem: Problem, team: Team, scratch: Scratch) -> None:
        from .backward_kernel import recur
        from .backward_tiles import LINE

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

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, w_hh: Piece, operands: Sequence[Any]) -> None:
        """Compute; see `Recurrence`."""
        assert delta is not None
        workspace[self.counters.offset : self.counters.offset + self.counters.nbytes].zero_()
        mine = [placed(piece, workspace) for piece in (delta, w_hh, self.sums, self.partial, self.counters)]
        self.kernel.now()(*mine[:2], *operands, *mine[2:])
