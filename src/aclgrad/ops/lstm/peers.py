"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...testing.peers import CUDA, Peer, Prepared, loaded, without_tf32
from .reference import lstm


def torch_forward(*args: Any) -> Prepared:
    """The forward pass of nn.LSTM in training, which keeps what its backward pass needs, as ours does."""
    x, params, hx, _, has_bias, layers, _, _, bidirectional, batch_first = args
    empty = nn.LSTM(x.shape[2], params[1].shape[1], layers, has_bias, batch_first, bidirectional=bidirectional)
    lstm = loaded(empty, x, params)
    leaf = x.detach().requires_grad_()

    def run() -> tuple[Tensor, Tensor, Tensor]:
        y, (hy, cy) = lstm(leaf, None if hx is None else tuple(hx))
        return y.detach(), hy.detach(), cy.detach()

    return run


def torch_backward(*args: Any) -> Prepared:
    """The backward pass of nn.LSTM with the same weights (oneDNN on a CPU, cuDNN on a GPU).

    Its forward runs here, outside the timed part, on the same input; the activations it saves are its own.
    """
    x, hx, params, dy, dh, dc, *_ = args
    *_, has_bias, layers, _, _, bidirectional, batch_first, _ = args
    hidden = hx[0].shape[2]
    empty = nn.LSTM(x.shape[2], hidden, layers, has_bias, batch_first, bidirectional=bidirectional)
    lstm = loaded(empty, x, params)
    leaves = [x.detach().requires_grad_(), *(state.detach().requires_grad_() for state in hx)]
    y, (hy, cy) = lstm(leaves[0], (leaves[1], leaves[2]))
    wanted = [*leaves, *lstm.parameters()]
    given = [(out, grad) for out, grad in ((y, dy), (hy, dh), (cy, dc)) if grad is not None]
    outputs, gradients = [out for out, _ in given], [grad for _, grad in given]
    return lambda: torch.autograd.grad(outputs, wanted, gradients, retain_graph=True)


def of_one_forward_pass(args: Sequence[Any]) -> list[Any]:
    """The arguments of the backward pass with what a forward pass over them saves: nn.LSTM takes no other."""
    x, hx, params, dy, dh, dc, *_ = args
    *_, batch_sizes, has_bias, layers, dropout, train, bidirectional, batch_first, mask = args
    options = (batch_sizes, has_bias, layers, dropout, train, bidirectional, batch_first)
    _, _, _, *saved = lstm(x, params, hx, *options)
    return [x, hx, params, dy, dh, dc, *saved, *options, mask]


PEERS: dict[str, tuple[Peer, ...]] = {
    "lstm": (
        Peer("nn.LSTM", torch_forward),
        Peer("nn.LSTM, no TF32", without_tf32(torch_forward), devices=CUDA),
    ),
    "lstm_backward": (
        Peer("nn.LSTM", torch_backward, alike=of_one_forward_pass),
        Peer("nn.LSTM, no TF32", without_tf32(torch_backward), devices=CUDA, alike=of_one_forward_pass),
    ),
}
