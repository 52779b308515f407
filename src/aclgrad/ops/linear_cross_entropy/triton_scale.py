"""GPU kernel of `scale_`: the host does not know the factor, so every program looks whether there is work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from ...core.backends import Launch
from ...core.spec import Call
from ...gpu.launch import Kernel, jit
from .triton_plan import ceil_div

LINE = 4096
SHORT_LINE = 1024  # of a row with gaps
PROGRAMS = 2048  # enough to fill any GPU; each takes one line after the other


@jit
def scaled(x, factor, count, LINE: tl.constexpr, PROGRAMS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every `PROGRAMS`-th line."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        start = tl.program_id(0).to(tl.int64) * LINE
        while start < count:
            at = start + tl.arange(0, LINE)
            values = tl.load(x + at, at < count).to(tl.float32) * by
            tl.store(x + at, values.to(x.dtype.element_ty), at < count)
            start += PROGRAMS * LINE


@jit
def scaled_row(x, factor, columns, row_stride, column_stride, LINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row, with gaps between its elements or around it."""
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        row = tl.program_id(0).to(tl.int64)
        start = row * 0
        while start < columns:
            at = start + tl.arange(0, LINE)
            place = x + row * row_stride + at * column_stride
            values = tl.load(place, at < columns).to(tl.float32) * by
            tl.store(place, values.to(x.dtype.element_ty), at < columns)
            start += LINE


class Scale:
    """Phase two of `scale_`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        x, factor = call["x"], call["factor"]
        dtypes = [x.dtype, factor.dtype]
        if x.is_dense():
            programs = min(PROGRAMS, ceil_div(x.numel, LINE))
            constants = {"LINE": LINE, "PROGRAMS": programs}
            self._kernel = Kernel(scaled, (programs,), call.device, dtypes, (x.numel,), constants)
        else:
            rows, columns = x.shape
            numbers = (columns, *x.strides)
            self._kernel = Kernel(scaled_row, (rows,), call.device, dtypes, numbers, {"LINE": SHORT_LINE})

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        self._kernel(*args)


def scale_(call: Call) -> Launch:
    """Any strides."""
    return Scale(call)
