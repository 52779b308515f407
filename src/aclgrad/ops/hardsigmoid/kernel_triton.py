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
def _value(x):  # type: ignore[no-untyped-def]
    line = x.to(tl.float32) * (1 / 6) + 0.5
    return tl.where(line < 0.0, 0.0, tl.where(line > 1.0, 1.0, line))  # lets a NaN pass


@jit
def _gradient(grad, x):  # type: ignore[no-untyped-def]
    x = x.to(tl.float32)
    return tl.where((x > -3.0) & (x < 3.0), grad.to(tl.float32) * (1 / 6), 0.0)


@jit
def _result(grad, x, at, inside):  # type: ignore[no-untyped-def]
    """The gradient; without one to propagate, the value. `at` says where each lies, `inside` is None where all are."""
    grad_at, x_at = at
    values = tl.load(x + x_at, inside)
    return _value(values) if grad is None else _gradient(tl.load(grad + grad_at, inside), values)


@jit
def _line(grad, x, out, count, LINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A line of gapless operands. Only the last line needs a mask, which would cost the others their wide accesses."""
    start = tl.program_id(0).to(tl.int64) * LINE
    at = tl.arange(0, LINE)
    if grad is not None:
        grad += start
    x += start
    out += start
    if start + LINE <= count:
        tl.store(out + at, _result(grad, x, (at, at), None).to(out.dtype.element_ty))
    else:
        inside = at < (count - start)
        tl.store(out + at, _result(grad, x, (at, at), inside).to(out.dtype.element_ty), inside)


@jit
def _tile(  # type: ignore[no-untyped-def]
    grad, x, out, sizes, grad_strides, x_strides, out_strides, down,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A tile of operands of any strides."""
    rows, columns, inside = place(down, sizes, ROWS, COLUMNS, WIDE)
    at = offsets(rows, columns, sizes, grad_strides), offsets(rows, columns, sizes, x_strides)
    result = _result(grad, x, at, inside)
    tl.store(out + offsets(rows, columns, sizes, out_strides), result.to(out.dtype.element_ty), inside)


class Pointwise:
    """Phase two of all: the gradient if there is one to propagate, else the value."""

    workspace = 0

    def __init__(self, call: Call, target: str) -> None:
        grad, x, out = call["grad_output"], call["x"], call[target]
        loops = Loops.over(x.shape, (x if grad is None else grad).strides, x.strides, out.strides)
        dtypes = [None if grad is None else grad.dtype, x.dtype, out.dtype]
        if loops.flat:
            lines = triton.cdiv(loops.count, LINE)
            self._kernel = Kernel(_line, (lines,), call.device, dtypes, (loops.count,), {"LINE": LINE})
        else:
            tiles = Tiles.of(loops)
            numbers: tuple[Number, ...] = (tiles.sizes, *tiles.strides, tiles.down)
            self._kernel = Kernel(_tile, (tiles.count,), call.device, dtypes, numbers, tiles.constants)


class Forward(Pointwise):
    """Phase two of `hardsigmoid`."""

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(None, args[0], outs[0])


class InPlace(Pointwise):
    """Phase two of `hardsigmoid_`."""

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(None, args[0], args[0])


class Backward(Pointwise):
    """Phase two of `hardsigmoid_backward`."""

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        self._kernel(args[0], args[1], outs[0])


def hardsigmoid(call: Call) -> Launch:
    """Any dtype but float64, any strides."""
    return Forward(call, "out")


def hardsigmoid_(call: Call) -> Launch:
    """Any dtype but float64, any strides."""
    return InPlace(call, "x")


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    return Backward(call, "out")
