"""bias_grad: the sums of the columns of p, which are read once more for it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from aclgrad.core.spec import F32, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import NamedKernel, Operand

from .choose import SUM_COLUMNS, SUM_ROWS, Chunk


@jit
def add_columns(
    p_ptr, sums_ptr, rows, columns, p_row, sums_stride, BEGINS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """`sums` += the sums of `COLUMNS` columns of p over its rows; if it `BEGINS`, nothing was there before."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    start = 0
    while start < rows:
        row = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        p = tl.load(p_ptr + row * p_row + column[None, :], (row < rows) & inside[None, :], other=0.0)
        total += p.to(tl.float32)
        start += ROWS
    result = tl.sum(total, 0)
    at = sums_ptr + column.to(tl.int64) * sums_stride
    if not BEGINS:
        result += tl.load(at, inside, other=0.0)
    tl.store(at, result, inside)


class ColumnSums:
    """The sums of the columns of a chunk of p, whose rows are `leading` elements apart."""

    def __init__(self, call: Call, chunk: Chunk, leading: int, *, begins: bool) -> None:
        """The sums of a chunk that `begins` are its own, those of another are added to what is there."""
        self._kernel = NamedKernel(
            add_columns, (triton.cdiv(chunk.columns, SUM_COLUMNS),), call.device,
            (Operand("p", call["input"].dtype), Operand("sums", F32)),
            {
                "rows": chunk.rows, "columns": chunk.columns, "p_row": leading,
                "sums_stride": call["bias_grad"].strides[0],
            },
            {"BEGINS": begins, "ROWS": SUM_ROWS, "COLUMNS": SUM_COLUMNS}, num_warps=8,
        )  # fmt: skip

    def __call__(self, sums: torch.Tensor, p: torch.Tensor) -> None:
        """Add; both are the chunk's."""
        self._kernel({"sums": sums, "p": p})
