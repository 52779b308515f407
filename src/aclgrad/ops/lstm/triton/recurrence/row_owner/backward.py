"""The gradient's recurrence by row owners: one launch, in split float32."""

from __future__ import annotations

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.operands import Given, NamedBulkKernel, NamedKernel, Operand, clear

from ...choose import Choice
from ...fp16_split.split import SplitMatrix, SplitWeights
from ...problem import UNKNOWN, ByPrecision, Problem
from ..warp_specialised.cut import WarpSpecialisedBackward
from .cut import WARPS, RowOwner


class RowOwnerRecurrence:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident.

    Groups of rows have `row_sets` that have nothing to do with each other.
    """

    row_sets = 1

    def __init__(
        self,
        problem: Problem,
        choice: Choice,
        cut: RowOwner | WarpSpecialisedBackward,
        scratch: Scratch,
        w_hh: Piece,
        delta: SplitMatrix,
    ) -> None:
        from ..barrier import COUNTER_WORDS

        dims, self._choice, self._w_hh = problem.dims, choice, w_hh
        self._problem, self._cut, self._delta = problem, cut, delta
        programs, groups, _ = cut.grid(dims)
        self.bias_sums = scratch.tensor((programs * groups, 4 * dims.H), torch.float32)
        self.row_amax = scratch.tensor((dims.rows,), torch.int32)
        self._weights = SplitWeights(dims.D, dims.H, problem.device, scratch, twice=False)
        row_sets = groups * self.row_sets
        partial = scratch.tensor((row_sets * cut.rows * cut.split_k * dims.H,), torch.float32)
        self._counters = scratch.tensor((row_sets * 2 * COUNTER_WORDS.value,), torch.int32)
        self._operands = (
            Operand.at("delta_high", delta.high),
            Operand.at("w_hh_split", self._weights.parts),
            *problem.given(),
            Operand.at("delta_low", delta.low),
            Operand.at("bias_sums", self.bias_sums),
            Operand.at("partial", partial),
            Operand.at("row_amax", self.row_amax),
            Operand.at("w_hh_amax", self._weights.amax),
            Operand.at("counters", self._counters),
        )
        self._kernel = ByPrecision(problem.dtype, self._make)

    def _make(self, precise: bool) -> NamedKernel | NamedBulkKernel:
        """The kernel for one precision."""
        from .backward_kernel import row_owner_backward

        problem, dims = self._problem, self._problem.dims
        return NamedKernel(
            row_owner_backward, self._cut.grid(dims), problem.device, self._operands, problem.numbers,
            {**self._cut.constants(dims), "PRECISE": precise}, num_warps=WARPS, maxnreg=255,
            launch_cooperative_grid=True, unknown=UNKNOWN,
        )  # fmt: skip

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        clear(self._counters, workspace)
        self._weights(workspace, placed(self._w_hh, workspace), precise=self._kernel.precise)
        self._kernel.now()(given, workspace)

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()
