"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...testing.peers import Peer, Prepared


def aten_forward(x: Tensor) -> Prepared:
    """The operator torch has built in."""
    out = torch.empty_like(x)
    return lambda: torch.ops.aten.hardsigmoid.out(x, out=out)


def aten_backward(grad_output: Tensor, x: Tensor) -> Prepared:
    """The operator torch has built in."""
    out = torch.empty_like(x)
    return lambda: torch.ops.aten.hardsigmoid_backward.grad_input(grad_output, x, grad_input=out)


PEERS: dict[str, tuple[Peer, ...]] = {
    "hardsigmoid": (Peer("aten", aten_forward, writes_out=True),),
    "hardsigmoid_": (Peer("aten", lambda x: lambda: torch.ops.aten.hardsigmoid_(x)),),
    "hardsigmoid_backward": (Peer("aten", aten_backward, writes_out=True),),
}
