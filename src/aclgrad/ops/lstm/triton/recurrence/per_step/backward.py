"""The recurrence by a launch a step: whatever cannot stay resident, and large batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import INTERPRETING, Kernel
from aclgrad.gpu.products import multiply

from ....spec import LstmDims
from ...problem import ByPrecision, Problem
from .backward_kernel import advance
from .split_products import MOST_UNITS, Halves, Product, pieces

LIBRARY_ROWS = 32
"""Rows of a batch that are worth a product of the library."""

LAUNCHES, HALVED_LAUNCHES = 40, 16
"""Microseconds of a step that is launched by itself; of one with a product in halves."""

ROW_UNITS = 1024
"""Units that a program of a step takes at least, where it takes whole rows."""


class Steps:
    """A launch a step, and a library's product where the batch is large enough to be worth one."""

    groups = 0
    sums = None
    peaks = None

    def __init__(self, problem: Problem, scratch: Scratch) -> None:
        dims = problem.dims
        self.dims = dims
        self.carry = scratch.tensor((2, dims.D, dims.N, dims.H), torch.float32)
        self.clock = scratch.tensor((dims.T + 1 if INTERPRETING else 0,), torch.int32)
        self.products: Piece | None = None
        self.halves: Halves | None = None
        count = halved(dims, problem.dtype)
        rows, units, warps = max(16, min(64, triton.next_power_of_2(dims.N))), 32, 4
        if count is not None:
            self.halves = Halves(dims, count, problem.device, scratch)
            units = triton.next_power_of_2(dims.H)
            rows, warps = max(1, ROW_UNITS // units), 8 if units >= ROW_UNITS else 4
        elif not INTERPRETING and dims.N >= LIBRARY_ROWS:
            self.products = scratch.tensor((dims.D, dims.N, dims.H), torch.float32)
            rows, warps = 8, 2
        self.gates_of = problem.strides[-1]
        there = (self.halves or self.products) is not None
        halves = (torch.float16, torch.int32, torch.int32) if self.halves else (None,) * 3

        def make(precise: bool) -> Kernel:
            return Kernel(
                advance,
                (triton.cdiv(dims.H, units), triton.cdiv(dims.N, rows), dims.D),
                problem.device,
                (*problem.dtypes, torch.float32, torch.float32 if there else None, *halves, torch.int32),
                problem.numbers,
                {
                    "H": dims.H, "ROWS": rows, "UNITS": units, "DEEP": 64,
                    "PIECES": self.halves.pieces(precise) if self.halves else 1, "PRECISE": precise,
                    "INTERPRETED": INTERPRETING,
                },
                num_warps=warps,
            )  # fmt: skip

        self.kernel = ByPrecision(problem, make)

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, w_hh: Piece, operands: Sequence[Any]) -> None:
        """One launch a step and one for the initial states; see `Recurrence`."""
        assert delta is not None
        kernel, steps = self.kernel.now(), range(self.dims.T + 1)
        mine = [placed(piece, workspace) for piece in (delta, w_hh, self.carry)]
        if self.halves is not None:
            each = self.halves.prepared(workspace, mine[1], precise=self.kernel.precise)
            products, made = [each] * self.dims.T, self.halves.pointers(workspace)
        elif self.products is not None:
            out = self.products.view(workspace)
            products, made = self._library(out, delta.view(workspace), w_hh.view(workspace)), (out, None, None, None)
        else:
            products, made = [[]] * self.dims.T, (None,) * 4
        launch = kernel.fixed(*mine[:2], *operands, mine[2], *made)
        clock: Sequence[Any] = [16 * step for step in steps]
        if INTERPRETING:
            numbers = torch.arange(len(steps), out=self.clock.view(workspace), device=workspace.device)
            clock = [numbers[step:] for step in steps]
        launch(clock[0])
        for now, before in zip(clock[1:], products, strict=True):
            for product in before:
                multiply(*product)
            launch(now)

    def _library(self, out: torch.Tensor, delta: torch.Tensor, weights: torch.Tensor) -> list[list[Product]]:
        """The products of each step, of operands as they are."""
        dims = self.dims
        gates = delta.as_strided(
            (dims.D, dims.T, dims.N, 4 * dims.H), (4 * dims.H, self.gates_of[0], self.gates_of[1], 1)
        )
        chains = [
            [(out[d], step, weights[d].t()) for step in (of if d else of[::-1])]
            for d, of in enumerate(chain.unbind() for chain in gates)
        ]
        return [list(products) for products in zip(*chains, strict=True)]


def halved(dims: LstmDims, dtype: torch.dtype) -> int | None:
    """Into how many pieces a step's product in halves is cut, if it is made that way."""
    if dtype != torch.float32 or dims.N < LIBRARY_ROWS or not 0 < dims.H <= MOST_UNITS:
        return None
    return pieces(4 * dims.H)


def steps_cost(dims: LstmDims, dtype: torch.dtype) -> float:
    """A guess at the microseconds of a step; see `triton_teams`."""
    work = dims.D * dims.N * 4 * dims.H * dims.H  # multiplications
    if halved(dims, dtype) is not None:
        return HALVED_LAUNCHES * dims.D + 3 * work / 300e6
    return LAUNCHES + work / (30e6 if dtype == torch.float32 else 200e6)
