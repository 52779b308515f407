"""Biases: their sum in the forward pass, and their gradients, sums of the gate gradients over all rows in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import NamedKernel, Operand

from ..dims import LstmDims

SUM_COLUMNS, SUM_ROWS, ROWS_PER_GROUP = 128, 16, 512
"""What a program of `sum_rows` sums: so many columns, rows at a time, and rows in all."""

WRITE_COLUMNS, ADD_COLUMNS = 32, 256
"""Columns of a program of `write_bias` and of `sum_biases`."""


@jit
def sum_biases(bias_ptr, b_ih0_ptr, b_hh0_ptr, b_ih1_ptr, b_hh1_ptr, width, b_strides, COLUMNS: tl.constexpr):
    """Row `program_id(1)` of bias [directions, width]: b_ih + b_hh in their own dtype."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    if tl.program_id(1) == 0:
        a = tl.load(b_ih0_ptr + columns * b_strides[0], mask=inside, other=0.0)
        b = tl.load(b_hh0_ptr + columns * b_strides[1], mask=inside, other=0.0)
    else:
        a = tl.load(b_ih1_ptr + columns * b_strides[2], mask=inside, other=0.0)
        b = tl.load(b_hh1_ptr + columns * b_strides[3], mask=inside, other=0.0)
    value = (a.to(tl.float32) + b.to(tl.float32)).to(b_ih0_ptr.dtype.element_ty)
    tl.store(bias_ptr + tl.program_id(1) * width + columns, value.to(tl.float32), mask=inside)


@jit
def sum_rows(sums_ptr, delta_ptr, width, count, GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Row g of `sums`: GROUP rows of delta [count, width] summed."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, GROUP, ROWS):
        rows = tl.program_id(1).to(tl.int64) * GROUP + start + tl.arange(0, ROWS)
        inside = (rows < count)[:, None] & (columns < width)[None, :]
        total += tl.load(delta_ptr + rows[:, None] * width + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    at = sums_ptr + tl.program_id(1).to(tl.int64) * width + columns
    tl.store(at, tl.sum(total, axis=0), mask=columns < width)


@jit
def write_bias(
    db_ih0_ptr, db_hh0_ptr, db_ih1_ptr, db_hh1_ptr, sums_ptr, width, groups, db_strides,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Both bias gradients of direction `program_id(1)`, from `sums` [groups, directions · width]."""
    reverse = tl.program_id(1)
    row_stride = tl.num_programs(1) * width
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    start = 0
    while start < groups:
        rows = start + tl.arange(0, ROWS)
        at = rows[:, None].to(tl.int64) * row_stride + reverse * width + columns[None, :]
        total += tl.load(sums_ptr + at, mask=(rows < groups)[:, None] & inside[None, :], other=0.0)
        start += ROWS
    value = tl.sum(total, axis=0).to(db_ih0_ptr.dtype.element_ty)
    if reverse == 0:
        tl.store(db_ih0_ptr + columns * db_strides[0], value, mask=inside)
        tl.store(db_hh0_ptr + columns * db_strides[1], value, mask=inside)
    else:
        tl.store(db_ih1_ptr + columns * db_strides[2], value, mask=inside)
        tl.store(db_hh1_ptr + columns * db_strides[3], value, mask=inside)


class BiasSum:
    """b_ih + b_hh of both directions, [D, 4H] in float32."""

    def __init__(self, dims: LstmDims, dtype: torch.dtype, device: torch.device, biases: Sequence[Meta]) -> None:
        names = ("b_ih0", "b_hh0", "b_ih1", "b_hh1")
        self._kernel = NamedKernel(
            sum_biases, (triton.cdiv(4 * dims.H, ADD_COLUMNS), dims.D), device,
            (Operand("bias", torch.float32), *(Operand(name, dtype) for name in names)),
            {"width": 4 * dims.H, "b_strides": _strides(biases)}, {"COLUMNS": ADD_COLUMNS}, unknown=True,
        )  # fmt: skip

    def __call__(self, bias: Any, biases: Sequence[torch.Tensor]) -> None:
        """Add; the biases are b_ih, b_hh of each direction."""
        b_ih0, b_hh0, b_ih1, b_hh1 = (*biases[:2], *biases[-2:])
        self._kernel({"bias": bias, "b_ih0": b_ih0, "b_hh0": b_hh0, "b_ih1": b_ih1, "b_hh1": b_hh1})


class BiasGradients:
    """db_ih and db_hh of both directions, from sums that the recurrence has made or from the gate gradients."""

    def __init__(
        self,
        dims: LstmDims,
        dtype: torch.dtype,
        device: torch.device,
        scratch: Scratch,
        sums: Piece | None,
        gradients: Sequence[Meta],
    ) -> None:
        gates, rows = dims.D * 4 * dims.H, dims.rows
        self._sum_rows: NamedKernel | None = None
        if sums is None:
            groups = max(1, triton.cdiv(rows, ROWS_PER_GROUP))
            sums = scratch.tensor((groups, gates), torch.float32)
            self._sum_rows = NamedKernel(
                sum_rows, (triton.cdiv(gates, SUM_COLUMNS), groups), device,
                (Operand.at("sums", sums), Operand("delta", dtype)), {"width": gates, "count": rows},
                {"GROUP": ROWS_PER_GROUP, "ROWS": SUM_ROWS, "COLUMNS": SUM_COLUMNS},
            )  # fmt: skip
        names = ("db_ih0", "db_hh0", "db_ih1", "db_hh1")
        self._write = NamedKernel(
            write_bias, (triton.cdiv(4 * dims.H, WRITE_COLUMNS), dims.D), device,
            (*(Operand(name, dtype) for name in names), Operand.at("sums", sums)),
            {"width": 4 * dims.H, "groups": sums.shape[0], "db_strides": _strides(gradients)},
            {"ROWS": SUM_ROWS, "COLUMNS": WRITE_COLUMNS}, unknown=True,
        )  # fmt: skip

    def __call__(self, workspace: torch.Tensor, delta: Piece | None, gradients: Sequence[torch.Tensor]) -> None:
        """Write the gradients, db_ih and db_hh of each direction."""
        if self._sum_rows is not None:
            assert delta is not None  # or the recurrence would have summed
            self._sum_rows({"delta": delta.view(workspace)}, workspace)
        db_ih0, db_hh0, db_ih1, db_hh1 = (*gradients[:2], *gradients[-2:])
        self._write({"db_ih0": db_ih0, "db_hh0": db_hh0, "db_ih1": db_ih1, "db_hh1": db_hh1}, workspace)


def _strides(metas: Sequence[Meta]) -> tuple[int, ...]:
    """Of both biases of the first and of the last direction."""
    return tuple(meta.strides[0] for meta in (*metas[:2], *metas[-2:]))
