"""GPU kernel of `scale_`: the host does not know the factor, so every program looks whether there is work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand

SCALE_LINE = 4096  # elements that a program takes at a time
SCALE_ROW_LINE = 1024  # the same of a row with gaps
MOST_PROGRAMS = 2048  # enough to fill any GPU; each takes one line after the other


@jit
def scaled(x_ptr, factor_ptr, count, LINE: tl.constexpr, PROGRAMS: tl.constexpr):
    """Every `PROGRAMS`-th line."""
    by = tl.load(factor_ptr).to(tl.float32)
    if by != 1.0:
        start = tl.program_id(0).to(tl.int64) * LINE
        while start < count:
            at = start + tl.arange(0, LINE)
            values = tl.load(x_ptr + at, at < count).to(tl.float32) * by
            tl.store(x_ptr + at, values.to(x_ptr.dtype.element_ty), at < count)
            start += PROGRAMS * LINE


@jit
def scaled_row(x_ptr, factor_ptr, columns, x_row, x_column, LINE: tl.constexpr):
    """A row, with gaps between its elements or around it."""
    by = tl.load(factor_ptr).to(tl.float32)
    if by != 1.0:
        row = tl.program_id(0).to(tl.int64)
        start = row * 0
        while start < columns:
            at = start + tl.arange(0, LINE)
            place = x_ptr + row * x_row + at * x_column
            values = tl.load(place, at < columns).to(tl.float32) * by
            tl.store(place, values.to(x_ptr.dtype.element_ty), at < columns)
            start += LINE


class Scale:
    """Phase two of `scale_`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        x, operands = call["x"], [Operand.of(call, "x"), Operand.of(call, "factor")]
        if x.is_dense():
            programs = min(MOST_PROGRAMS, triton.cdiv(x.numel, SCALE_LINE))
            constants = {"LINE": SCALE_LINE, "PROGRAMS": programs}
            self._kernel = CallKernel(call, scaled, (programs,), operands, {"count": x.numel}, constants)
        else:
            rows, columns = x.shape
            numbers = {"columns": columns, "x_row": x.strides[0], "x_column": x.strides[1]}
            self._kernel = CallKernel(call, scaled_row, (rows,), operands, numbers, {"LINE": SCALE_ROW_LINE})

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()


def scale_(call: Call) -> Launch:
    """Any strides."""
    return Scale(call)
