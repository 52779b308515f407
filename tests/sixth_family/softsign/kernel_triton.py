"""softsign on a GPU."""

from __future__ import annotations

import triton.language as tl

from ...core.backends import Launch
from ...core.spec import Call
from ...gpu.launch import jit
from ...gpu.pointwise import Pointwise


@jit
def _value(x):
    x = x.to(tl.float32)
    return x / (1.0 + tl.abs(x))


@jit
def _gradient(grad, x):
    base = 1.0 + tl.abs(x.to(tl.float32))
    return grad.to(tl.float32) / (base * base)


def softsign(call: Call) -> Launch:
    """Any dtype but float64, any strides."""
    return Pointwise(call, _value, ("x",))


def softsign_backward(call: Call) -> Launch:
    """Any mix of dtypes but float64, any strides."""
    return Pointwise(call, _gradient, ("grad_output", "x"))
