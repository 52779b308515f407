"""Bias gradients: sums of the gate gradients over all rows, in one order."""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit


@jit
def sum_rows(sums, delta, ROW, COUNT, GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row g of `sums`: GROUP rows of delta [COUNT, ROW] summed."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, GROUP, ROWS):
        rows = tl.program_id(1).to(tl.int64) * GROUP + start + tl.arange(0, ROWS)
        inside = (rows < COUNT)[:, None] & (columns < ROW)[None, :]
        total += tl.load(delta + rows[:, None] * ROW + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    at = sums + tl.program_id(1).to(tl.int64) * ROW + columns
    tl.store(at, tl.sum(total, axis=0), mask=columns < ROW)


@jit
def write_bias(  # type: ignore[no-untyped-def]
    ih0, hh0, ih1, hh1, sums, WIDTH, strides, GROUPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Both bias gradients of direction `program_id(1)`, from `sums` [GROUPS, directions · WIDTH]."""
    reverse = tl.program_id(1)
    row = tl.num_programs(1) * WIDTH
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < WIDTH
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, GROUPS, ROWS):
        rows = start + tl.arange(0, ROWS)
        at = rows[:, None].to(tl.int64) * row + reverse * WIDTH + columns[None, :]
        total += tl.load(sums + at, mask=(rows < GROUPS)[:, None] & inside[None, :], other=0.0)
    value = tl.sum(total, axis=0).to(ih0.dtype.element_ty)
    if reverse == 0:
        tl.store(ih0 + columns * strides[0], value, mask=inside)
        tl.store(hh0 + columns * strides[1], value, mask=inside)
    else:
        tl.store(ih1 + columns * strides[2], value, mask=inside)
        tl.store(hh1 + columns * strides[3], value, mask=inside)
