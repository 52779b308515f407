"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...testing.peers import CUDA, Peer, Prepared, loaded, named, without_tf32
from . import spec
from .dims import SAVED
from .reference import lstm


def torch_forward(*args: Any) -> Prepared:
    """The forward pass of nn.LSTM in training, which keeps what its backward pass needs, as ours does."""
    given = named(spec.lstm.spec, args)
    module, leaf, hx = _module(given), given["input"].detach().requires_grad_(), given["hx"]

    def run() -> tuple[Tensor, Tensor, Tensor]:
        y, (hy, cy) = module(leaf, None if hx is None else tuple(hx))
        return y.detach(), hy.detach(), cy.detach()

    return run


def torch_backward(*args: Any) -> Prepared:
    """The backward pass of nn.LSTM with the same weights (oneDNN on a CPU, cuDNN on a GPU).

    Its forward runs here, outside the timed part, on the same input; the activations it saves are its own.
    """
    given = named(spec.lstm_backward.spec, args)
    module = _module(given)
    leaves = [tensor.detach().requires_grad_() for tensor in (given["input"], *given["hx"])]
    y, (hy, cy) = module(leaves[0], (leaves[1], leaves[2]))
    wanted = [*leaves, *module.parameters()]
    pairs = [(out, given[name]) for out, name in ((y, "dy"), (hy, "dh"), (cy, "dc")) if given[name] is not None]
    outputs, gradients = [out for out, _ in pairs], [grad for _, grad in pairs]
    return lambda: torch.autograd.grad(outputs, wanted, gradients, retain_graph=True)


def _module(given: dict[str, Any]) -> nn.LSTM:
    """Torch's module with the options and weights of a call."""
    x, params = given["input"], given["params"]
    options = (given["num_layers"], given["has_bias"], given["batch_first"])
    empty = nn.LSTM(x.shape[2], params[1].shape[1], *options, bidirectional=given["bidirectional"])
    return loaded(empty, x, params)


def of_one_forward_pass(args: Sequence[Any]) -> list[Any]:
    """The arguments of the backward pass with what a forward pass over them saves: nn.LSTM takes no other."""
    given = named(spec.lstm_backward.spec, args)
    _, _, _, *saved = lstm(*(given[arg.name] for arg in spec.lstm.spec.args))
    given |= dict(zip(SAVED, saved, strict=True))
    return list(given.values())


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
