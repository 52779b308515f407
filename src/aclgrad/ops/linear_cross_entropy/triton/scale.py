"""GPU kernel of `scale_`: the host does not know the factor, so every program looks whether there is work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import Kernel, jit

from .choose import ceil_div

LINE = 4096
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


class Scale:
    """Phase two of `scale_`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        x, factor = call["x"], call["factor"]
        if not x.is_dense():
            raise Unsupported("scales a tensor without gaps")
        programs = min(PROGRAMS, ceil_div(x.numel, LINE))
        constants = {"LINE": LINE, "PROGRAMS": programs}
        self._kernel = Kernel(scaled, (programs,), call.device, [x.dtype, factor.dtype], (x.numel,), constants)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        self._kernel(*args)


def scale_(call: Call) -> Launch:
    """A tensor without gaps."""
    return Scale(call)
