"""The gradient's recurrence by row owners, warp-specialised or not: one launch, in split float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed

from ...choose import Choice
from ...fp16_split.split import SplitMatrix, SplitWeights
from ...operands import Given, NamedBulkKernel, NamedKernel, Operand, clear
from ...problem import ByPrecision, Problem
from ..warp_specialised.cut import ROW_SETS, TILE_K, TILE_ROWS, WarpSpecialisedBackward
from .cut import WARPS, RowOwner


class RowOwnerRecurrence:
    """One launch, cooperative: it fails rather than hangs where the grid cannot be resident."""

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
        programs, groups, _ = cut.grid(dims)
        self.bias_sums = scratch.tensor((programs * groups, 4 * dims.H), torch.float32)
        self.row_amax = scratch.tensor((dims.T * dims.N,), torch.int32)
        self._weights = SplitWeights(dims.D, dims.H, problem.device, scratch, twice=False)
        row_sets = groups * (ROW_SETS if isinstance(cut, WarpSpecialisedBackward) else 1)
        partial = scratch.tensor((row_sets * cut.rows * cut.split_k * dims.H,), torch.float32)
        self._counters = scratch.tensor((row_sets * 2 * COUNTER_WORDS.value,), torch.int32)
        operands = (
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

        def make(precise: bool) -> NamedKernel | NamedBulkKernel:
            constants = {**cut.constants(dims), "PRECISE": precise}
            if isinstance(cut, WarpSpecialisedBackward):
                return _warp_specialised(problem, cut, delta, operands, constants)
            return _one_after_the_other(problem, cut, operands, constants)

        self._kernel = ByPrecision(problem.dtype, make)

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        clear(self._counters, workspace)
        self._weights(workspace, placed(self._w_hh, workspace), precise=self._kernel.precise)
        self._kernel.now()(given, workspace)

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()


def _one_after_the_other(
    problem: Problem, cut: RowOwner, operands: tuple[Operand, ...], constants: Mapping[str, Any]
) -> NamedKernel:
    from .backward_kernel import row_owner_backward

    return NamedKernel(
        row_owner_backward, cut.grid(problem.dims), problem.device, operands, problem.numbers, constants,
        num_warps=WARPS, maxnreg=255, launch_cooperative_grid=True,
    )  # fmt: skip


def _warp_specialised(
    problem: Problem,
    cut: WarpSpecialisedBackward,
    delta: SplitMatrix,
    operands: tuple[Operand, ...],
    constants: Mapping[str, Any],
) -> NamedBulkKernel:
    """Gate gradients are copied from matrices with a row for one sequence at a step or, batch-major, at all steps."""
    from aclgrad.gpu.hopper import Block

    from ..warp_specialised.backward_kernel import START_REGISTERS, warp_specialised_backward

    dims, (_, width) = problem.dims, problem.strides["delta"]
    matrix = Block((dims.T * dims.N * 4 * dims.H // width, width), width, (TILE_ROWS, TILE_K), torch.float16)
    return NamedBulkKernel(
        warp_specialised_backward, cut.grid(dims), problem.device,
        {"delta_high": (matrix, delta.high), "delta_low": (matrix, delta.low)}, operands, problem.numbers, constants,
        num_warps=4, maxnreg=START_REGISTERS, launch_cooperative_grid=True,
    )  # fmt: skip
