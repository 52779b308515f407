"""softsign on the CPU."""

from __future__ import annotations

from typing import Any

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu.compiler import jit
from ...cpu.lanes import cast
from ...cpu.pointwise import Pointwise


@jit
def _value(x: Any) -> Any:
    return x / (cast(1.0, x) + abs(x))


@jit
def _gradient(grad: Any, x: Any) -> Any:
    base = cast(1.0, grad + x) + abs(x)
    return grad / (base * base)


def softsign(call: Call) -> Launch:
    """Any dtype, any strides."""
    return Pointwise(call, _value, ("x",))


def softsign_backward(call: Call) -> Launch:
    """Any mix of dtypes, any strides."""
    return Pointwise(call, _gradient, ("grad_output", "x"))
