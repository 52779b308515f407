"""The textbook: the part of an LSTM cell that follows its matrix products, and its gradient.

Autograd can differentiate both. The gradient is a function of what the cell saved; a second derivative goes on through
cy and storage to what they were computed from.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared.lstm_gates import gate_gradients, none_as_zeros

Gradients = tuple[Tensor, Tensor, Tensor | None]
"""(grad_gates [N, 4H], grad_cx [N, H], grad_bias [4H] or None)."""


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """From both products [N, 4H] (blocks i, f, g, o), the state [N, H] and the biases [4H] to (hy, cy, storage)."""
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + bias
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * cx + i * g
    return o * torch.tanh(cy), cy, torch.cat([i, f, g, o], dim=1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_c: Tensor | None, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool
) -> Gradients:
    """The gradients, from what the cell saved."""
    i, f, g, o = storage.chunk(4, dim=1)
    grad_hy, grad_c = none_as_zeros(grad_hy, cx), none_as_zeros(grad_c, cx)
    gates, grad_cx = gate_gradients(grad_hy, grad_c, i, f, g, o, torch.tanh(cy), cx, unbounded=(cy,))
    grad_gates = torch.cat(gates, dim=1)
    return grad_gates, grad_cx, grad_gates.sum(dim=0) if has_bias else None
