"""The family's functions."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from . import spec

CellStates = tuple[Tensor, Tensor, Tensor]
CellGradients = tuple[Tensor, Tensor, Tensor | None]


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
    *,
    out: tuple[Tensor | None, Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> CellStates:
    """The fused LSTM cell: what follows the two matrix products of `nn.LSTMCell`.

    Shapes: `input_gates` = x @ w_ihᵀ and `hidden_gates` = hx @ w_hhᵀ [N, 4H], their columns in blocks i, f, g, o; `cx`
    [N, H]; `input_bias` and `hidden_bias` [4H], both or none. Returns (hy [N, H], cy [N, H], storage [N, 4H]), of which
    `storage` holds the activated gates for `lstm_cell_backward`. One dtype for all: float32, float16, bfloat16 or
    float64; half types are computed in float32 and rounded once.

    >>> import torch, aclgrad
    >>> gates = torch.zeros(1, 8)
    >>> hy, cy, storage = aclgrad.lstm_cell(gates, gates, torch.ones(1, 2))
    >>> cy
    tensor([[0.5000, 0.5000]])
    """
    states = spec.lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias, out=out, backend=backend)
    return cast(CellStates, states)


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_c: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    storage: Tensor,
    has_bias: bool,
    *,
    out: tuple[Tensor | None, Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> CellGradients:
    """Gradient of the fused LSTM cell: what follows the two matrix products of `nn.LSTMCell`.

    Shapes: `grad_hy`, `grad_c`, `cx`, `cy` [N, H]; `storage` [N, 4H] holds the activated gates in blocks i, f, g, o.
    Returns (grad_gates [N, 4H], grad_cx [N, H], grad_bias [4H] or None without bias). One of the two gradients may be
    None and counts as zero. One dtype for all: float32, float16, bfloat16 or float64; half types are computed in
    float32 and rounded once, the bias gradient is summed before the rounding.

    >>> import torch, aclgrad
    >>> ones = torch.ones(1, 2)
    >>> gates, cx, bias = aclgrad.lstm_cell_backward(ones, ones, ones, ones, torch.ones(1, 8), True)
    >>> cx
    tensor([[1.4200, 1.4200]])
    """
    gradients = spec.lstm_cell_backward(grad_hy, grad_c, cx, cy, storage, has_bias, out=out, backend=backend)
    return cast(CellGradients, gradients)
