"""How the steps of a forward layer are run: by one resident grid where that is possible, else by a launch a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import INTERPRETING, Kernel, multiprocessors

from ....dims import LstmDims
from ...choose import Limits
from ...fp16_split.input_product import multiply_finely
from ...fp16_split.products import Operand
from ...moves import Strides
from ..persistent.cut import ForwardPairs, ForwardTeam, best_pairs, best_team, steps_cost
from .forward_kernel import advance

if TYPE_CHECKING:
    from aclgrad.gpu.hopper import BulkKernel

ALIGN = 8
"""Elements to which rows of h are aligned in exchange."""

LIBRARY_ROWS = {1: 512, 2: 192}
"""Rows from which the library multiplies what a step needs, by the number of its operands' parts."""

Multiplication = tuple[Operand, Operand, torch.Tensor]
"""Operands of `multiply_finely` and its result."""


@dataclass(frozen=True)
class ForwardProblem:
    """What a recurrence is made for.

    There are peaks of x and w_ih if `scaled`, biases if `biased`, initial states if `started`, saved activations if
    `saves`. The strides are those of the gates (step, row), h0, c0, the output (step, row, direction, unit), hy, cy and
    the saved activations (step, row, unit).
    """

    dims: LstmDims
    dtype: torch.dtype
    device: torch.device
    scaled: bool
    biased: bool
    started: bool
    saves: bool
    strides: tuple[Strides, ...]

    @property
    def half(self) -> torch.dtype:
        """What is multiplied: float32 is taken apart."""
        return torch.float16 if self.dtype == torch.float32 else self.dtype

    @property
    def width(self) -> int:
        """Elements from one row of h to the next."""
        return -(-self.dims.H // ALIGN) * ALIGN

    def parts(self, precise: bool) -> int:
        """In how many parts h and w_hh are multiplied."""
        return 2 if self.dtype == torch.float32 and precise else 1

    def dtypes(self, precise: bool) -> tuple[torch.dtype | None, ...]:
        """Of all pointers up to `sizes`."""
        single = self.dtype == torch.float32
        peak, opened = torch.int32, self.dtype if self.started else None
        return (
            self.half, self.half, self.half if single and precise else None, peak if single else None, torch.float32,
            *(peak if self.scaled else None,) * 2, torch.float32 if self.biased else None,
            torch.float32 if self.started else None, opened, opened, *(self.dtype,) * 3,
            *(self.dtype if self.saves else None,) * 14, torch.int64 if self.dims.variable else None,
        )  # fmt: skip

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers of every kernel."""
        return (self.dims.T, self.dims.N, *self.strides)

    @property
    def reach(self) -> int:
        """The largest offset within one step."""
        batch, width = self.dims.N, self.dims.D * self.dims.H
        (_, gates_row), *others = self.strides
        reaches = [abs(of[0]) + batch * abs(of[1]) + width * abs(of[-1]) for of in others]
        return max(*reaches, batch * gates_row + 4 * width, 4 * self.dims.D * batch * self.width)


class Way(Protocol):
    """One way to run all steps."""

    @property
    def kernel(self) -> Any:
        """Compiled when it is first needed: few switch between precisions."""

    def __call__(self, workspace: torch.Tensor, exchange: Piece, operands: Sequence[Any]) -> None:
        """Compute; the operands stand in the order of the kernels' pointers from w_hh to `sizes`."""


class ForwardRecurrence:
    """From the products of a layer's input to all its states, as precise as torch's switch says at the time."""

    def __init__(self, problem: ForwardProblem, scratch: Scratch) -> None:
        dims = problem.dims
        parts = problem.parts(precise=True)
        self.exchange = scratch.tensor((2, dims.D, parts, dims.N, problem.width), problem.half)
        precisions = (True, False) if parts == 2 else (True,)
        self._ways = {precise: way(problem, precise, scratch) for precise in precisions}
        self._ways[not (parts == 2 and torch.backends.cuda.matmul.allow_tf32)].kernel  # noqa: B018  compiles it

    def __call__(self, workspace: torch.Tensor, precise: bool, operands: Sequence[Any]) -> None:
        """Compute; see `Way`."""
        self._ways[precise](workspace, self.exchange, operands)


def way(problem: ForwardProblem, precise: bool, scratch: Scratch) -> Way:
    """The best way for these sizes."""
    dims = problem.dims
    parts = problem.parts(precise)
    if not INTERPRETING and dims.T > 1 and problem.reach < 2**31:
        limits = Limits.of(problem.device)
        team, pairs = best_team(dims, parts, limits), best_pairs(dims, parts, limits)
        if pairs is not None and pairs.cost < min(steps_cost(dims, parts), team.cost if team else math.inf):
            return Pairs(problem, pairs, scratch)
        if team is not None and team.cost < steps_cost(dims, parts):
            return Team(problem, precise, team, scratch)
    return Steps(problem, precise, scratch)


class Team:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    def __init__(self, problem: ForwardProblem, precise: bool, team: ForwardTeam, scratch: Scratch) -> None:
        from ..persistent.backward_tiles import LINE

        self.problem, self.precise, self.team = problem, precise, team
        _, groups, directions = team.grid(problem.dims)
        self.counters = scratch.tensor((groups * directions * team.chunks * LINE.value,), torch.int32)

    @cached_property
    def kernel(self) -> Kernel:
        """See `Way`."""
        from ..persistent.forward_kernel import recur_forward

        problem, team = self.problem, self.team
        return Kernel(
            recur_forward, team.grid(problem.dims), problem.device, (*problem.dtypes(self.precise), torch.int32),
            problem.numbers, team.constants(problem.dims), num_warps=team.warps, maxnreg=255,
            launch_cooperative_grid=True,
        )  # fmt: skip

    def __call__(self, workspace: torch.Tensor, exchange: Piece, operands: Sequence[Any]) -> None:
        """Compute; see `Way`."""
        workspace[self.counters.offset : self.counters.offset + self.counters.nbytes].zero_()
        self.kernel(placed(exchange, workspace), *operands, placed(self.counters, workspace))


class Pairs:
    """One launch, cooperative as a team's, of float32 in two parts."""

    def __init__(self, problem: ForwardProblem, pairs: ForwardPairs, scratch: Scratch) -> None:
        from ..persistent.backward_tiles import LINE
        from ..warp_specialised.forward_kernel import GATES
        from ..warp_specialised.tile_ring import ROWS, STREAMS

        self.problem, self.pairs = problem, pairs
        members, groups, directions = pairs.grid(problem.dims)
        streams = groups * directions * STREAMS.value
        self.meetings = scratch.tensor((streams + streams * members, LINE.value), torch.int32)
        self.flags = streams * LINE.value  # elements before them, the counters of all
        self.inbox = scratch.tensor((streams * members, GATES.value * ROWS.value), torch.float32)
        self._dtypes = (*problem.dtypes(precise=True), torch.int32, torch.int32, torch.float32)

    @cached_property
    def kernel(self) -> BulkKernel:
        """See `Way`. h is copied from one matrix: all parts of it lie below each other."""
        from aclgrad.gpu.hopper import Block, BulkKernel

        from ..warp_specialised.forward_kernel import REGISTERS, recur_in_pairs
        from ..warp_specialised.tile_ring import DEEP, ROWS

        dims, problem = self.problem.dims, self.problem
        states = Block((4 * dims.D * dims.N, dims.H), dims.H, (ROWS.value, DEEP.value), torch.float16)
        return BulkKernel(
            recur_in_pairs, self.pairs.grid(dims), problem.device, (states,), self._dtypes, problem.numbers,
            self.pairs.constants(dims), num_warps=4, maxnreg=REGISTERS, launch_cooperative_grid=True,
        )  # fmt: skip

    def __call__(self, workspace: torch.Tensor, exchange: Piece, operands: Sequence[Any]) -> None:
        """Compute; see `Way`."""
        self.meetings.view(workspace).zero_()
        self.kernel(
            (exchange.view(workspace),), placed(exchange, workspace), *operands, placed(self.meetings, workspace),
            placed(self.meetings, workspace, self.flags), placed(self.inbox, workspace),
        )  # fmt: skip


class Steps:
    """A launch a step, and the library's products where the batch is large enough to be worth them."""

    def __init__(self, problem: ForwardProblem, precise: bool, scratch: Scratch) -> None:
        dims = problem.dims
        self.problem, self.precise = problem, precise
        self.parts = problem.parts(precise)
        self.carry = scratch.tensor((3 if dims.variable else 1, dims.D, dims.N, dims.H), torch.float32)
        self.clock = scratch.tensor((dims.T, 4), torch.int32)  # a line of 16 bytes a step keeps addresses aligned
        self.products: Piece | None = None
        if LIBRARY_ROWS[self.parts] <= dims.N:
            self.products = scratch.tensor((dims.D, dims.N, 4 * dims.H), torch.float32)

    @cached_property
    def kernel(self) -> Kernel:
        """See `Way`."""
        problem, dims = self.problem, self.problem.dims
        rows = max(16, min(64, triton.next_power_of_2(dims.N)))
        tall = triton.cdiv(dims.N, rows) * dims.D
        units = 32 if tall * triton.cdiv(dims.H, 32) * 4 >= 3 * multiprocessors(problem.device) else 16
        if self.products is not None:
            rows, units = 8, 32
        return Kernel(
            advance, (triton.cdiv(dims.H, units), triton.cdiv(dims.N, rows), dims.D), problem.device,
            (*problem.dtypes(self.precise), *(torch.float32, torch.float32 if self.products else None, torch.int32)),
            problem.numbers,
            {"H": dims.H, "ROWS": rows, "UNITS": units, "DEEP": 64, "WIDTH": problem.width, "WIDEN": INTERPRETING},
            num_warps=8 if rows * units >= 2048 else 2 if self.products else 4, num_stages=3,
        )  # fmt: skip

    def __call__(self, workspace: torch.Tensor, exchange: Piece, operands: Sequence[Any]) -> None:
        """Compute; see `Way`."""
        clock, products = self.clock.view(workspace), self.products
        torch.arange(clock.numel(), out=clock.view(-1), device=clock.device)
        launch = self.kernel.fixed(
            placed(exchange, workspace), *operands, placed(self.carry, workspace),
            None if products is None else placed(products, workspace),
        )  # fmt: skip
        multiplications = self._multiplications(workspace, exchange, operands)
        for step in range(len(clock)):
            for multiplication in multiplications[step % 2] if step else ():
                multiply_finely(*multiplication)
            launch(placed(self.clock, workspace, 4 * step))

    def _multiplications(
        self, workspace: torch.Tensor, exchange: Piece, operands: Sequence[Any]
    ) -> tuple[list[Multiplication], list[Multiplication]]:
        """The products before an even step and before an odd one: of what the other kind has left."""
        dims, width = self.problem.dims, self.problem.width
        if self.products is None:
            return [], []
        shape = (2, dims.D, self.parts, dims.N, width)
        states = exchange.view(workspace).view(-1)[: math.prod(shape)].view(shape)[..., : dims.H]
        weights = [w_hh.view(dims.D, 4 * dims.H, dims.H) for w_hh in operands[: self.parts]]
        outs = self.products.view(workspace)

        def before(left: int) -> list[Multiplication]:
            return [(list(states[left, d]), [w_hh[d].t() for w_hh in weights], outs[d]) for d in range(dims.D)]

        return before(1), before(0)
