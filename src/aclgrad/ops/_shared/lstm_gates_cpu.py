"""One LSTM step and the gradients of its gates, for the kernels of the cell and of the whole LSTM."""

from __future__ import annotations

from typing import Any

from ...cpu.compiler import inlined, jit
from ...cpu.lanes import cast
from ...cpu.vecmath import multiply_add, sigmoid, tanh


@inlined
def next_state(a_i: Any, a_f: Any, a_g: Any, a_o: Any, c_prev: Any) -> Any:
    """(i, f, g, o, c) of one element of one step: the gates activated, and c = f·c_prev + i·g.

    All values are of one type, float32 or float64, and so are the results. Inf and NaN go where IEEE arithmetic
    sends them.
    """
    i, f, g, o = sigmoid(a_i), sigmoid(a_f), tanh(a_g), sigmoid(a_o)
    return i, f, g, o, multiply_add(f, c_prev, i * g)


@jit
def gate_gradients(dh: Any, dc: Any, i: Any, f: Any, g: Any, o: Any, tanhc: Any, c_prev: Any) -> Any:
    """Gradients (di, df, dg, do, dc_prev) of one element of one step.

    `dh` and `dc` are the gradients that arrive at the step's hidden state h = o·tanh(c) and cell state
    c = f·c_prev + i·g; i, f, g, o are the activated gates and the first four results the gradients before their
    activations. All values are of one type, float32 or float64, and so are the results.

    A result that depends on an Inf or NaN argument is NaN, never Inf and never finite: 0·v is a signed zero for a
    finite v and NaN otherwise, so adding it changes nothing else. Finite arguments that overflow still give Inf.
    """
    zero, one = cast(0.0, i), cast(1.0, i)
    taint_h = zero * dh + zero * o + zero * tanhc
    taint_c = zero * dc + taint_h
    taint_ig = zero * i + zero * g
    dct = ((one - tanhc * tanhc) * (o * dh) + dc) + taint_c
    di = ((dct * g) * (one - i)) * i + taint_ig
    df = ((dct * c_prev) * (one - f)) * f + (zero * f + zero * c_prev)
    dg = (dct * i) * (one - g * g) + taint_ig
    do = ((dh * tanhc) * (one - o)) * o + taint_h
    return di, df, dg, do, dct * f + zero * f
