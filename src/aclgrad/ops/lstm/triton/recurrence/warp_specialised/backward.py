"""The gradient's recurrence by warp-specialised row owners: one launch, in split float32."""

from __future__ import annotations

import torch

from aclgrad.gpu.operands import NamedBulkKernel

from ...problem import UNKNOWN
from ..row_owner.backward import RowOwnerRecurrence
from .cut import ROW_SETS, TILE_K, TILE_ROWS


class WarpSpecialisedBackwardRecurrence(RowOwnerRecurrence):
    """Row owners of another kernel."""

    row_sets = ROW_SETS

    def _make(self, precise: bool) -> NamedBulkKernel:
        """Gate gradients are copied from matrices with a row for a sequence at a step or, batch-major, at all steps."""
        from aclgrad.gpu.hopper import Block

        from .backward_kernel import START_REGISTERS, warp_specialised_backward

        problem, dims, delta = self._problem, self._problem.dims, self._delta
        _, width = problem.strides["delta"]
        matrix = Block((dims.rows * 4 * dims.H // width, width), width, (TILE_ROWS, TILE_K), torch.float16)
        return NamedBulkKernel(
            warp_specialised_backward, self._cut.grid(dims), problem.device,
            {"delta_high": (matrix, delta.high), "delta_low": (matrix, delta.low)}, self._operands, problem.numbers,
            {**self._cut.constants(dims), "PRECISE": precise}, num_warps=4, maxnreg=START_REGISTERS,
            launch_cooperative_grid=True, unknown=UNKNOWN,
        )  # fmt: skip
