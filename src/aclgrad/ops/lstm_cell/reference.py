"""The textbook: the part of an LSTM cell that follows its matrix products, and its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared.lstm_gates import gate_gradients, none_as_zeros


def lstm_cell(gates: Tensor, cx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From pre-activations [N, 4H] (blocks i, f, g, o) and the state [N, H] to (hy, cy, storage)."""
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * cx + i * g
    return o * torch.tanh(cy), cy, torch.cat([i, f, g, o], dim=1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_c: Tensor | None, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(grad_gates [N, 4H], grad_cx [N, H], grad_bias [4H] or None)."""
    i, f, g, o = storage.chunk(4, dim=1)
    grad_hy, grad_c = none_as_zeros(grad_hy, cx), none_as_zeros(grad_c, cx)
    gates, grad_cx = gate_gradients(grad_hy, grad_c, i, f, g, o, torch.tanh(cy), cx, unbounded=(cy,))
    grad_gates = torch.cat(gates, dim=1)
    return grad_gates, grad_cx, grad_gates.sum(dim=0) if has_bias else None
