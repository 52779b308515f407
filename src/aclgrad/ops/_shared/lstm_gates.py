"""The gradients of an LSTM cell's gates, as torch writes them; used by the references of the cell and of the LSTM.

With dh, dc the gradients of the cell's two outputs and i, f, g, o its activated gates:

    dct = dh·o·(1 − tanhc²) + dc        di = dct·g·i·(1 − i)        dg = dct·i·(1 − g²)
    dc_prev = dct·f                     df = dct·c_prev·f·(1 − f)   do = dh·tanhc·o·(1 − o)

Whatever depends on an infinite or undefined input is undefined: NaN, never an infinity and never a finite number.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gate_gradients(
    dh: Tensor, dc: Tensor, i: Tensor, f: Tensor, g: Tensor, o: Tensor, tanhc: Tensor, c_prev: Tensor,
    *, unbounded: tuple[Tensor, ...] = (),
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:  # fmt: skip
    """((di, df, dg, do), dc_prev). `unbounded` holds inputs that tanh(c) was computed from and would hide an Inf."""
    dct = (1 - tanhc * tanhc) * (o * dh) + dc + doubt(dh, dc, o, tanhc, *unbounded)
    di = dct * g * (1 - i) * i + doubt(g, i)
    df = dct * c_prev * (1 - f) * f + doubt(c_prev, f)
    dg = dct * i * (1 - g * g) + doubt(g, i)
    do = dh * tanhc * (1 - o) * o + doubt(dh, tanhc, o, *unbounded)
    return (di, df, dg, do), dct * f + doubt(f)


def doubt(*tensors: Tensor) -> Tensor:
    """0 where all are finite, NaN elsewhere: x - x is 0 for a number and NaN for Inf and NaN."""
    total = tensors[0] - tensors[0]
    for tensor in tensors[1:]:
        total = total + (tensor - tensor)
    return total


def none_as_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A missing gradient is zero."""
    return torch.zeros_like(like) if gradient is None else gradient
