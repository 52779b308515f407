"""Ops that torch leaves to the maker of a device: it has no kernel of them for the processor, only for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _convolution_backward(grad: Tensor, input: Tensor, weight: Tensor, *options: Any) -> Any:
    """Torch's own, which wants the sizes of the bias; `options` end in stride, …, transposed, …, groups, mask."""
    transposed, groups = options[3], options[5]
    features = weight.shape[1] * groups if transposed else weight.shape[0]
    return torch.ops.aten.convolution_backward(grad, input, weight, [features], *options)


def _gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(hy, what the gradient needs) of a step: gates r, z, n side by side."""
    if input_bias is not None and hidden_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    (ir, iz, candidate), (hr, hz, hn) = input_gates.chunk(3, 1), hidden_gates.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (candidate + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


def _gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    """Gradients of (input gates, hidden gates, hx, input bias, hidden bias)."""
    r, z, n, hx, hn = workspace.chunk(5, 1)
    dn = grad * (1 - z) * (1 - n * n)
    dz = grad * (hx - n) * z * (1 - z)
    dr = dn * hn * r * (1 - r)
    dinput, dhidden = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    biases = (dinput.sum(0), dhidden.sum(0)) if has_bias else (None, None)
    return dinput, dhidden, grad * z, *biases


KERNELS: dict[str, Callable[..., Any]] = {
    "convolution_overrideable": torch.ops.aten.convolution,
    "convolution_backward_overrideable": _convolution_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
"""By the op's name; they take tensors of the device behind."""
