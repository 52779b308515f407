"""The forward recurrence by warp-specialised pairs of programs: one launch."""

from __future__ import annotations

from functools import cached_property

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.operands import Given, NamedBulkKernel, Operand, clear

from ...choose import Choice
from ...problem import UNKNOWN, Problem
from .cut import TILE_K, TILE_ROWS, WarpSpecialisedForward


class WarpSpecialisedForwardRecurrence:
    """One launch, cooperative, of split float32."""

    def __init__(
        self, problem: Problem, choice: Choice, cut: WarpSpecialisedForward, scratch: Scratch, h_buffer: Piece
    ) -> None:
        from ..barrier import COUNTER_WORDS
        from .forward_kernel import GATES
        from .tile_ring import ROW_SETS

        self._problem, self._cut, self._h_buffer, self._choice = problem, cut, h_buffer, choice
        programs, groups, directions = cut.grid(problem.dims)
        row_sets = groups * directions * ROW_SETS.value
        self._counters = scratch.tensor((row_sets + row_sets * programs, COUNTER_WORDS.value), torch.int32)
        inbox = scratch.tensor((row_sets * programs, GATES.value * TILE_ROWS), torch.float32)
        self._operands = (
            Operand.at("h_buffer", h_buffer),
            *problem.given(precise=True),
            Operand.at("counters", self._counters),
            Operand.at("flags", self._counters, row_sets * COUNTER_WORDS.value),
            Operand.at("inbox", inbox),
        )

    @cached_property
    def _kernel(self) -> NamedBulkKernel:
        from aclgrad.gpu.hopper import Block

        from .forward_kernel import START_REGISTERS, warp_specialised_forward

        dims, problem = self._problem.dims, self._problem
        # h is copied from one matrix: both parts of it lie below each other
        h = Block((4 * dims.D * dims.N, dims.H), dims.H, (TILE_ROWS, TILE_K), torch.float16)
        return NamedBulkKernel(
            warp_specialised_forward, self._cut.grid(dims), problem.device, {"h_buffer": (h, self._h_buffer)},
            self._operands, problem.numbers, self._cut.constants(dims), num_warps=4, maxnreg=START_REGISTERS,
            launch_cooperative_grid=True, unknown=UNKNOWN,
        )  # fmt: skip

    def compile(self) -> None:
        """Compile the kernel, if it is not yet."""
        assert self._kernel

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        clear(self._counters, workspace)
        self._kernel(given, workspace)

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()
