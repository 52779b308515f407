"""hardsigmoid on a GPU: one pass over any layout."""

from __future__ import annotations

import triton.language as tl

from ...core.backends import Launch
from ...core.spec import Call
from ...gpu.launch import jit
from ...gpu.pointwise import Pointwise


@jit
def _value(x):
    line = (x.to(tl.float32) + 3.0) * (1 / 6)  # near -3 the sum is exact; x/6 + 1/2 would have an error of its terms
    return tl.where(line < 0.0, 0.0, tl.where(line > 1.0, 1.0, line))  # lets a NaN pass


@jit
def _gradient(grad, x):
    x = x.to(tl.float32)
    return tl.where((x > -3.0) & (x < 3.0), grad.to(tl.float32) * (1 / 6), 0.0)


def hardsigmoid(call: Call) -> Launch:
    """Any dtype but float64, any strides."""
    return Pointwise(call, _value, ("x",))


def hardsigmoid_(call: Call) -> Launch:
    """Any dtype but float64, any strides."""
    return Pointwise(call, _value, ("x",), ("x",))


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes but float64, any strides."""
    return Pointwise(call, _gradient, ("grad_output", "x"))
