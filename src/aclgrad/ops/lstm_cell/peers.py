"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...testing.peers import CPU, CUDA, Peer, Prepared, compiled


def eager_forward(x: Tensor, h: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None) -> Prepared:
    """The formula line by line."""

    def run() -> tuple[Tensor, Tensor, Tensor]:
        gates = x + h
        if input_bias is not None and hidden_bias is not None:
            gates = gates + input_bias + hidden_bias
        i, f, g, o = gates.chunk(4, dim=1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        cy = f * cx + i * g
        return o * torch.tanh(cy), cy, torch.cat([i, f, g, o], dim=1)

    return run


def aten_forward(x: Tensor, h: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None) -> Prepared:
    """The operator behind nn.LSTMCell on a GPU."""
    return lambda: torch.ops.aten._thnn_fused_lstm_cell(x, h, cx, input_bias, hidden_bias)


def eager_backward(
    grad_hy: Tensor, grad_c: Tensor, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool
) -> Prepared:
    """The formula line by line."""

    def run() -> tuple[Tensor, Tensor, Tensor | None]:
        i, f, g, o = storage.chunk(4, dim=1)
        tanh_c = torch.tanh(cy)
        dc = grad_c + grad_hy * o * (1 - tanh_c * tanh_c)
        gates = torch.cat(
            [
                dc * g * i * (1 - i),
                dc * cx * f * (1 - f),
                dc * i * (1 - g * g),
                grad_hy * tanh_c * o * (1 - o),
            ],
            dim=1,
        )
        return gates, dc * f, gates.sum(dim=0) if has_bias else None

    return run


def aten_backward(grad_hy: Tensor, grad_c: Tensor, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool) -> Prepared:
    """The operator behind nn.LSTMCell on a GPU; the bias gradient is a sum that autograd adds."""
    backward = torch.ops.aten._thnn_fused_lstm_cell_backward_impl  # it has no public name

    return lambda: backward(grad_hy, grad_c, cx, cy, storage, has_bias)


PEERS: dict[str, tuple[Peer, ...]] = {
    "lstm_cell": (
        Peer("eager torch", eager_forward, devices=CPU),
        Peer("aten", aten_forward, devices=CUDA),
        Peer("torch.compile", compiled(eager_forward), devices=CUDA, compiles=True),
    ),
    "lstm_cell_backward": (
        Peer("eager torch", eager_backward, devices=CPU),
        Peer("aten", aten_backward, devices=CUDA),
        Peer("torch.compile", compiled(eager_backward), devices=CUDA, compiles=True),
    ),
}
