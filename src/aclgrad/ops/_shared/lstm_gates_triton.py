"""One LSTM step and the gradients of its gates, for the Triton kernels of the cell and of the whole LSTM."""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.maths import sigmoid, tanh


@triton.jit
def next_state(a_i, a_f, a_g, a_o, c_prev, ROUNDED: tl.constexpr = True):
    """(i, f, g, o, c) of elements of one step, all values float32: the gates activated, and c = f·c_prev + i·g.

    Inf and NaN go where IEEE arithmetic sends them. Results that are rounded to half precision anyway need not be
    ROUNDED.
    """
    i, f, g, o = sigmoid(a_i, ROUNDED), sigmoid(a_f, ROUNDED), tanh(a_g), sigmoid(a_o, ROUNDED)
    return i, f, g, o, f * c_prev + i * g


@triton.jit
def gate_gradients(dh, dc, i, f, g, o, tanhc, c_prev):
    """Gradients (di, df, dg, do, dc_prev) of elements of one step, all values float32.

    `dh` and `dc` are the gradients that arrive at the step's hidden state h = o·tanh(c) and cell state
    c = f·c_prev + i·g; i, f, g, o are the activated gates and the first four results the gradients before their
    activations.

    A result that depends on an Inf or NaN argument is NaN, never Inf and never finite: 0·v is a signed zero for a
    finite v and NaN otherwise, so adding it changes nothing else. Finite arguments that overflow still give Inf.
    """
    taint_h = 0.0 * dh + 0.0 * o + 0.0 * tanhc
    taint_c = 0.0 * dc + taint_h
    taint_ig = 0.0 * i + 0.0 * g
    dct = ((1.0 - tanhc * tanhc) * (o * dh) + dc) + taint_c
    di = ((dct * g) * (1.0 - i)) * i + taint_ig
    df = ((dct * c_prev) * (1.0 - f)) * f + (0.0 * f + 0.0 * c_prev)
    dg = (dct * i) * (1.0 - g * g) + taint_ig
    do = ((dh * tanhc) * (1.0 - o)) * o + taint_h
    return di, df, dg, do, dct * f + 0.0 * f
