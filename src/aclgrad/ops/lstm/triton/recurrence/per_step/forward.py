"""The forward recurrence by a launch per step: whatever cannot stay resident, and large batches."""

from __future__ import annotations

import math
from functools import cached_property

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.devices import multiprocessors
from aclgrad.gpu.launch import INTERPRETING
from aclgrad.gpu.operands import Given, Operand, StepKernel
from aclgrad.gpu.products import LibraryProduct

from ...choose import Choice
from ...fp16_split.input_product import fine_products
from ...problem import UNKNOWN, Problem
from .cut import PerStep, Product
from .forward_kernel import step_forward


class PerStepForwardRecurrence:
    """A launch per step; products in the kernel, or by the library before it."""

    def __init__(
        self, problem: Problem, precise: bool, choice: Choice, way: PerStep, scratch: Scratch, h_buffer: Piece
    ) -> None:
        dims = problem.dims
        self._problem, self._h_buffer, self._choice = problem, h_buffer, choice
        self._split = problem.split(precise)
        carry = scratch.tensor((3 if dims.variable else 1, dims.D, dims.N, dims.H), torch.float32)
        self._products: Piece | None = None
        if way.product is Product.LIBRARY:
            self._products = scratch.tensor((dims.D, dims.N, 4 * dims.H), torch.float32)
        self._operands = (
            Operand.at("h_buffer", h_buffer),
            *problem.given(precise),
            Operand.at("carry", carry),
            Operand.at("products", self._products),
            Operand.at("anew", problem.anew),
        )

    @cached_property
    def _kernel(self) -> StepKernel:
        problem, dims = self._problem, self._problem.dims
        rows = max(16, min(64, triton.next_power_of_2(dims.N)))
        tall = triton.cdiv(dims.N, rows) * dims.D
        units = 32 if tall * triton.cdiv(dims.H, 32) * 4 >= 3 * multiprocessors(problem.device) else 16
        if self._products is not None:
            rows, units = 8, 32
        return StepKernel(
            step_forward, (triton.cdiv(dims.H, units), triton.cdiv(dims.N, rows), dims.D), problem.device,
            self._operands, problem.numbers,
            {
                "H": dims.H, "ROWS": rows, "UNITS": units, "BLOCK_K": 64, "H_STRIDE": problem.h_stride,
                "WIDEN": INTERPRETING,
            },
            num_warps=8 if rows * units >= 2048 else 2 if self._products else 4, num_stages=3,
            unknown=UNKNOWN,
        )  # fmt: skip

    def compile(self) -> None:
        """Compile the kernel, if it is not yet."""
        assert self._kernel

    def __call__(self, workspace: torch.Tensor, given: Given) -> None:
        """Compute; see `Recurrence`."""
        self._kernel.run(given, workspace, self._problem.dims.T, self._multiplications(workspace, given))

    def describe(self) -> str:
        """See `Recurrence`."""
        return self._choice.describe()

    def _multiplications(self, workspace: torch.Tensor, given: Given) -> list[list[LibraryProduct]]:
        """The products before an even step and before an odd one: of the h that the other kind has left."""
        dims = self._problem.dims
        if self._products is None:
            return [[]]
        shape = (2, dims.D, self._split, dims.N, self._problem.h_stride)
        h = self._h_buffer.view(workspace).view(-1)[: math.prod(shape)].view(shape)[..., : dims.H]
        factors = [given[name].view(dims.D, 4 * dims.H, dims.H) for name in ("w_hh", "w_hh_low")[: self._split]]
        outs = self._products.view(workspace)
        return [
            [
                product
                for d in range(dims.D)
                for product in fine_products(list(h[buffer, d]), [w_hh[d].t() for w_hh in factors], outs[d])
            ]
            for buffer in (1, 0)
        ]
