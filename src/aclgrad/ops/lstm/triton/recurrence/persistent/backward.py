"""The gradient's recurrence by a persistent grid: one launch."""

from __future__ import annotations

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.operands import Given, NamedKernel, Operand, clear

from ...choose import Choice
from ...problem import UNKNOWN, ByPrecision, Problem
from .backward_cut import PersistentBackward


class PersistentBackwardRecurrence:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

    row_amax = None

    def __init__(
        self, problem: Problem, choice: Choice, cut: PersistentBackward, scratch: Scratch, w_hh: Piece, delta: Piece
    ) -> None:
        from ..barrier import COUNTER_WORDS
        from .backward_kernel import persistent_backward

        dims, self._choice = problem.dims, choice
        grid = programs, groups, _ = cut.grid(dims)
        blocks = groups * dims.D * cut.row_blocks
        self.bias_sums = scratch.tensor((groups, dims.D * 4 * dims.H), torch.float32)
        sums = programs * blocks * cut.units * cut.rows if cut.split_k > 1 else 1
        partial = scratch.tensor((sums,), torch.float32)
        self._counters = scratch.tensor((blocks * (programs + 1) * COUNTER_WORDS.value,), torch.int32)
        operands = (
            Operand.at("delta", delta),
            Operand.at("w_hh", w_hh),
            *problem.given(),
            Operand.at("bias_sums", self.bias_sums),
            Operand.at("partial", partial),
            Operand.at("counters", self._counters),
            Operand.at("anew", problem.anew),
        )

        def make(precise: bool) -> NamedKernel:
            return NamedKernel(
                persistent_backward, grid, problem.device, operands, problem.numbers,
                {**cut.constants(dims, problem.dtype), "PRECISE": precise}, num_warps=cut.warps, maxnreg=255,
                launch_cooperative_grid=True, unknown=UNKNOWN,
            )  # fmt: skip

        self._kernel = ByPrecision(problem.dtype, make)

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        clear(self._counters, workspace)
        self._kernel.now()(given, workspace)

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()
