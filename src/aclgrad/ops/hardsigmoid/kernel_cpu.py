"""hardsigmoid on the CPU: one pass over any layout."""

from __future__ import annotations

from typing import Any

from ...core.backends import Launch
from ...core.spec import Call
from ...cpu.compiler import jit
from ...cpu.lanes import cast
from ...cpu.pointwise import Pointwise


@jit
def _value(x: Any) -> Any:
    zero, one = cast(0.0, x), cast(1.0, x)
    line = (x + cast(3.0, x)) * cast(1 / 6, x)  # near -3 the sum is exact; x/6 + 1/2 would have an error of its terms
    high = one if line > one else line  # noqa: FURB136  # unlike min(), this lets a NaN pass
    return zero if line < zero else high


@jit
def _whole_value(x: Any) -> Any:
    """The value cut off to an integer."""
    return 1 if x >= 3 else 0


@jit
def _gradient(grad: Any, x: Any) -> Any:
    wide = grad + x  # of the type the result is computed in; its value is not used
    return grad * cast(1 / 6, wide) if (x > -3.0) and (x < 3.0) else cast(0.0, wide)


def hardsigmoid(call: Call) -> Launch:
    """Any dtype, any strides."""
    return Pointwise(call, _value_of(call), ("x",))


def hardsigmoid_(call: Call) -> Launch:
    """Any dtype, any strides."""
    return Pointwise(call, _value_of(call), ("x",), ("x",))


def hardsigmoid_backward(call: Call) -> Launch:
    """Any mix of float dtypes and any strides."""
    return Pointwise(call, _gradient, ("grad_output", "x"))


def _value_of(call: Call) -> Any:
    return _value if call["x"].dtype.is_floating_point else _whole_value
