"""The gradient's recurrence by a launch per step: whatever cannot stay resident, and large batches."""

from __future__ import annotations

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import INTERPRETING
from aclgrad.gpu.operands import Given, Operand, StepKernel
from aclgrad.gpu.products import LibraryProduct

from ....dims import LstmDims
from ...choose import Choice
from ...problem import UNKNOWN, ByPrecision, Problem
from .backward_kernel import step_backward
from .cut import PerStep, Product
from .split_products import SplitProducts

LEAST_ROW_UNITS = 1024
"""Units that a program takes at least, where it takes whole rows."""


class PerStepBackwardRecurrence:
    """A launch per step and one for the initial states; products in the kernel, or by the library before it."""

    bias_sums = None
    row_amax = None

    def __init__(
        self, problem: Problem, choice: Choice, way: PerStep, scratch: Scratch, w_hh: Piece, delta: Piece
    ) -> None:
        dims = problem.dims
        self._dims, self._w_hh, self._delta, self._choice = dims, w_hh, delta, choice
        self._delta_strides = problem.strides["delta"]
        carry = scratch.tensor((2, dims.D, dims.N, dims.H), torch.float32)
        self._split: SplitProducts | None = None
        self._products: Piece | None = None
        self._factor: Piece | None = None
        if way.product is Product.SPLIT_LIBRARY:
            self._split = SplitProducts(dims, way.partials, problem.device, scratch)
            self._products = self._split.products
        elif way.product is Product.LIBRARY:
            self._products = scratch.tensor((dims.D, dims.N, dims.H), torch.float32)
            if problem.packed is not None:
                self._factor = scratch.tensor((dims.D, dims.N, 4 * dims.H), problem.dtype)
        split = self._split
        operands = (
            Operand.at("delta", delta),
            Operand.at("w_hh", w_hh),
            *problem.given(),
            Operand.at("carry", carry),
            Operand.at("products", self._products),
            Operand.at("factor", self._factor),
            Operand.at("delta_split", split.delta if split else None),
            Operand.at("row_amax", split.row_amax if split else None),
            Operand.at("w_hh_amax", split.weights.amax if split else None),
            Operand.at("anew", problem.anew),
        )
        rows, units, warps = _tile(dims, way.product)

        def make(precise: bool) -> StepKernel:
            return StepKernel(
                step_backward, (triton.cdiv(dims.H, units), triton.cdiv(dims.N, rows), dims.D), problem.device,
                operands, problem.numbers,
                {
                    "H": dims.H, "ROWS": rows, "UNITS": units, "BLOCK_K": 64,
                    "PARTIALS": split.partials(precise) if split else 1, "PRECISE": precise, "WIDEN": INTERPRETING,
                },
                num_warps=warps, unknown=UNKNOWN,
            )  # fmt: skip

        self._kernel = ByPrecision(problem.dtype, make)

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        products: list[LibraryProduct] = []
        if self._split is not None:
            w_hh = placed(self._w_hh, workspace)
            products = self._split.prepared(workspace, w_hh, precise=self._kernel.precise)
        elif self._products is not None:
            products = self._library_products(workspace, self._products)
        self._kernel.now().run(given, workspace, self._dims.T + 1, [products])

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()

    def _library_products(self, workspace: torch.Tensor, products: Piece) -> list[LibraryProduct]:
        """The products before each step but the first, of operands as they are: from the end, or from the start."""
        dims = self._dims
        out, w_hh = products.view(workspace), self._w_hh.view(workspace)
        if self._factor is not None:
            factor = self._factor.view(workspace)
            return [LibraryProduct(out[d], factor[d], w_hh[d].t()) for d in range(dims.D)]
        t_stride, row_stride = self._delta_strides
        delta = self._delta.view(workspace).as_strided(
            (dims.D, dims.T, dims.N, 4 * dims.H), (4 * dims.H, t_stride, row_stride, 1)
        )
        starts, advances = (dims.T - 1, 0), (-t_stride, t_stride)
        return [LibraryProduct(out[d], delta[d, starts[d]], w_hh[d].t(), advance=advances[d]) for d in range(dims.D)]


def _tile(dims: LstmDims, product: Product) -> tuple[int, int, int]:
    """Rows and units of a program, and its warps."""
    if product is Product.SPLIT_LIBRARY:
        units = triton.next_power_of_2(dims.H)
        return max(1, LEAST_ROW_UNITS // units), units, 8 if units >= LEAST_ROW_UNITS else 4
    if product is Product.LIBRARY:
        return 8, 32, 2
    return max(16, min(64, triton.next_power_of_2(dims.N))), 32, 4
