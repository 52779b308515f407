"""GPU kernel of `scale_`: the host does not know the factor, so every program looks whether there is work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand

SCALE_LINE = 4096  # elements that a program takes at a time
MOST_PROGRAMS = 2048  # enough to fill any GPU; each takes one line after the other


@jit
def scaled(x_ptr, factor_ptr, count, LINE: tl.constexpr, PROGRAMS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every `PROGRAMS`-th line."""
    by = tl.load(factor_ptr).to(tl.float32)
    if by != 1.0:
        start = tl.program_id(0).to(tl.int64) * LINE
        while start < count:
            at = start + tl.arange(0, LINE)
            values = tl.load(x_ptr + at, at < count).to(tl.float32) * by
            tl.store(x_ptr + at, values.to(x_ptr.dtype.element_ty), at < count)
            start += PROGRAMS * LINE


class Scale:
    """Phase two of `scale_`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        x = call["x"]
        if not x.is_dense():
            raise Unsupported("scales a tensor without gaps")
        programs = min(MOST_PROGRAMS, triton.cdiv(x.numel, SCALE_LINE))
        self._kernel = CallKernel(
            call, scaled, (programs,), [Operand.of(call, "x"), Operand.of(call, "factor")], {"count": x.numel},
            {"LINE": SCALE_LINE, "PROGRAMS": programs},
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args, outs, workspace)

    def describe(self) -> str:
        """In words."""
        return self._kernel.describe()


def scale_(call: Call) -> Launch:
    """A tensor without gaps."""
    return Scale(call)
