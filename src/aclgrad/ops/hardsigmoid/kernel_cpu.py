"""hardsigmoid on the CPU: one pass over any layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu.compiler import jit
from ...cpu.lanes import cast
from ...cpu.strided import TILE, Loops, elementwise
from ...cpu.threads import Kernel, thread_count

SIXTH = math.nextafter(1 / 6, 1)  # three of the float64 below 1/6 are less than 1/2, so that -3 would not give 0


@jit
def _value(x: Any) -> Any:
    zero, one = cast(0.0, x), cast(1.0, x)
    line = x * cast(SIXTH, x) + cast(0.5, x)
    low = zero if line < zero else line  # noqa: FURB136  # unlike max(), this lets a NaN pass
    return one if low > one else low  # noqa: FURB136


@jit
def _whole_value(x: Any) -> Any:
    """The value cut off to an integer."""
    return 1 if x >= 3 else 0


@jit
def _gradient(grad: Any, x: Any) -> Any:
    wide = grad + x  # of the type the result is computed in; its value is not used
    return grad * cast(1 / 6, wide) if (x > -3.0) and (x < 3.0) else cast(0.0, wide)


_values, _whole_values, _gradients = elementwise(_value), elementwise(_whole_value), elementwise(_gradient)


def _forward(thread: int, threads: int, table: Any, x: Any, out: Any) -> None:
    _values(thread, threads, table, (x, out))


def _forward_of_integers(thread: int, threads: int, table: Any, x: Any, out: Any) -> None:
    _whole_values(thread, threads, table, (x, out))


def _backward(thread: int, threads: int, table: Any, grad: Any, x: Any, out: Any) -> None:
    _gradients(thread, threads, table, (grad, x, out))


class Pointwise:
    """Phase two: a kernel over the named operands, inputs before the output."""

    workspace = 0

    def __init__(self, call: Call, kernel: Any, *names: str) -> None:
        metas = [call[name] for name in names]
        loops = Loops.over(metas[0].shape, *(meta.strides for meta in metas))
        self._count = loops.count
        self._table = loops.table()
        self._table_address = self._table.data_ptr()
        self._kernel = Kernel(kernel, (torch.int64, *loops.arguments(*(meta.dtype for meta in metas))))

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        addresses = [tensor.data_ptr() for tensor in (*args, *outs)]
        self._kernel(thread_count(self._count, TILE), self._table_address, *addresses)


class InPlace(Pointwise):
    """Phase two with the argument for its output."""

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        super().__call__(args, args, workspace)


def hardsigmoid(call: Call) -> Launch:
    """Any dtype, any strides."""
    return Pointwise(call, _forward_for(call), "x", "out")


def hardsigmoid_(call: Call) -> Launch:
    """Any dtype, any strides."""
    return InPlace(call, _forward_for(call), "x", "x")


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes and any strides."""
    return Pointwise(call, _backward, "grad_output", "x", "out")


def _forward_for(call: Call) -> Any:
    return _forward if call["x"].dtype.is_floating_point else _forward_of_integers
