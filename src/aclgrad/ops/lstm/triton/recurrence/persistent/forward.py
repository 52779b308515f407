"""The forward recurrence by a persistent grid: one launch."""

from __future__ import annotations

from functools import cached_property

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.operands import Given, NamedKernel, Operand, clear

from ...choose import Choice
from ...problem import UNKNOWN, Problem
from .forward_cut import PersistentForward


class PersistentForwardRecurrence:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    def __init__(
        self,
        problem: Problem,
        precise: bool,
        choice: Choice,
        cut: PersistentForward,
        scratch: Scratch,
        h_buffer: Piece,
    ) -> None:
        from ..barrier import COUNTER_WORDS

        self._problem, self._cut, self._choice = problem, cut, choice
        _, groups, directions = cut.grid(problem.dims)
        words = groups * directions * cut.row_blocks * COUNTER_WORDS.value
        self._counters = scratch.tensor((words,), torch.int32)
        self._operands = (
            Operand.at("h_buffer", h_buffer),
            *problem.given(precise),
            Operand.at("counters", self._counters),
            Operand.at("anew", problem.anew),
        )

    @cached_property
    def _kernel(self) -> NamedKernel:
        from .forward_kernel import persistent_forward

        problem, cut = self._problem, self._cut
        return NamedKernel(
            persistent_forward, cut.grid(problem.dims), problem.device, self._operands, problem.numbers,
            cut.constants(problem.dims), num_warps=cut.warps, maxnreg=255, launch_cooperative_grid=True,
            unknown=UNKNOWN,
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
