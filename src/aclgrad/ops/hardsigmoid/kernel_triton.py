"""hardsigmoid on a GPU: one pass over any layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ...core.backends import Launch
from ...core.loops import Loops
from ...core.spec import Call
from ...gpu.launch import Kernel, Number, jit
from ...gpu.strided import LINE, Tiles, offsets, place


@jit
def _gradient(grad, x):  # type: ignore[no-untyped-def]
    x = x.to(tl.float32)
    return tl.where((x > -3.0) & (x < 3.0), grad.to(tl.float32) * (1 / 6), 0.0)


@jit
def _line(grad, x, out, count, LINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A line of gapless operands. Only the last line needs a mask, which would cost the others their wide accesses."""
    start = tl.program_id(0).to(tl.int64) * LINE
    at = tl.arange(0, LINE)
    grad += start
    x += start
    out += start
    if start + LINE <= count:
        tl.store(out + at, _gradient(tl.load(grad + at), tl.load(x + at)).to(out.dtype.element_ty))
    else:
        inside = at < (count - start)
        result = _gradient(tl.load(grad + at, inside), tl.load(x + at, inside))
        tl.store(out + at, result.to(out.dtype.element_ty), inside)


@jit
def _tile(  # type: ignore[no-untyped-def]
    grad, x, out, sizes, grad_strides, x_strides, out_strides, down,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A tile of operands of any strides."""
    rows, columns, inside = place(down, sizes, ROWS, COLUMNS, WIDE)
    gradient = _gradient(
        tl.load(grad + offsets(rows, columns, sizes, grad_strides), inside),
        tl.load(x + offsets(rows, columns, sizes, x_strides), inside),
    )
    tl.store(out + offsets(rows, columns, sizes, out_strides), gradient.to(out.dtype.element_ty), inside)


class HardsigmoidBackward:
    """Phase two of `hardsigmoid_backward`."""

    workspace = 0

    def __init__(self, call: Call) -> None:
        metas = [call[name] for name in ("grad_output", "x", "out")]
        loops = Loops.over(metas[0].shape, *(meta.strides for meta in metas))
        dtypes = [meta.dtype for meta in metas]
        if loops.flat:
            lines = triton.cdiv(loops.count, LINE)
            self._kernel = Kernel(_line, (lines,), call.device, dtypes, (loops.count,), {"LINE": LINE})
        else:
            tiles = Tiles.of(loops)
            numbers: tuple[Number, ...] = (tiles.sizes, *tiles.strides, tiles.down)
            self._kernel = Kernel(_tile, (tiles.count,), call.device, dtypes, numbers, tiles.constants)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args[0], args[1], outs[0])


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    return HardsigmoidBackward(call)
