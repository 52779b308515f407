"""What every operator is compared with: what a person would run today instead of it.

The first peer of an operator is the one its bars are about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from aclgrad.ops.linear_cross_entropy.reference import owned_targets
from aclgrad.ops.lstm.spec import lstm_backward

from .peer import CPU, CUDA, Peer, Prepared, compiled, loaded, named, without_tf32
from .peers_forward import FORWARD


def aten_hardsigmoid(grad_output: Tensor, x: Tensor) -> Prepared:
    """The operator torch has built in."""
    out = torch.empty_like(x)
    return lambda: torch.ops.aten.hardsigmoid_backward.grad_input(grad_output, x, grad_input=out)


def eager_cell(grad_hy: Tensor, grad_c: Tensor, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool) -> Prepared:
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


def eager_batch_norm(
    grad_out: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counter: Tensor,
) -> Prepared:
    """The formula with vectors broadcast along the channels; float32 vectors widen half batches."""
    shape = [1, -1, *[1] * (x.dim() - 2)]

    def run() -> Tensor:
        n = counter.sum()
        scale = invstd if weight is None else invstd * weight
        centred = grad_out - (sum_dy / n).view(shape)
        projected = (x - mean.view(shape)) * (invstd * invstd * sum_dy_xmu / n).view(shape)
        return ((centred - projected) * scale.view(shape)).to(x.dtype)

    return run


def torch_lstm(*args: Any) -> Prepared:
    """The backward pass of nn.LSTM with the same weights (oneDNN on a CPU, cuDNN on a GPU).

    Its forward runs here, outside the timed part, on the same input; the activations it saves are its own.
    """
    given = named(lstm_backward, args)
    x, hx, options = given["input"], given["hx"], (given["num_layers"], given["has_bias"], given["batch_first"])
    empty = nn.LSTM(x.shape[2], hx[0].shape[2], *options, bidirectional=given["bidirectional"])
    lstm = loaded(empty, x, given["params"])
    leaves = [x.detach().requires_grad_(), *(state.detach().requires_grad_() for state in hx)]
    y, (hy, cy) = lstm(leaves[0], (leaves[1], leaves[2]))
    wanted = [*leaves, *lstm.parameters()]
    pairs = [(out, given[name]) for out, name in ((y, "dy"), (hy, "dh"), (cy, "dc")) if given[name] is not None]
    outputs, gradients = [out for out, _ in pairs], [grad for _, grad in pairs]
    return lambda: torch.autograd.grad(outputs, wanted, gradients, retain_graph=True)


def eager_linear_cross_entropy(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float,  # noqa: ARG001  0 by contract
    logits_max: Tensor | None,
    sum_exp_logits: Tensor | None,
    softmax: Tensor | None,
) -> Prepared:
    """The whole probability matrix at once: products in the input's dtype, softmax in float32, in place if possible."""

    def run() -> tuple[Tensor, Tensor]:
        if logits_max is not None and sum_exp_logits is not None:
            p = (x @ w.t()).float().sub_(logits_max[:, None]).exp_().div_(sum_exp_logits[:, None])
        elif softmax is not None:
            p = softmax.clone()
        token, row = owned_targets(target_mask, masked_target, w.shape[0])
        p[token, row] -= 1
        p = p.mul_(grad[:, None]).to(x.dtype)
        return p @ w, p.t() @ x

    return run


def aten_cell(grad_hy: Tensor, grad_c: Tensor, cx: Tensor, cy: Tensor, storage: Tensor, has_bias: bool) -> Prepared:
    """The operator behind nn.LSTMCell on a GPU; the bias gradient is a sum that autograd adds."""
    backward = torch.ops.aten._thnn_fused_lstm_cell_backward_impl  # it has no public name

    return lambda: backward(grad_hy, grad_c, cx, cy, storage, has_bias)


def aten_batch_norm(
    grad_out: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None,
    sum_dy: Tensor, sum_dy_xmu: Tensor, counter: Tensor,
) -> Prepared:  # fmt: skip
    """The operator behind nn.SyncBatchNorm."""
    count = counter.int()
    return lambda: torch.batch_norm_backward_elemt(grad_out, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count)


PEERS: dict[str, tuple[Peer, ...]] = {
    **FORWARD,
    "hardsigmoid_backward": (Peer("aten", aten_hardsigmoid, writes_out=True),),
    "lstm_cell_backward": (
        Peer("eager torch", eager_cell, devices=CPU),
        Peer("aten", aten_cell, devices=CUDA),
        Peer("torch.compile", compiled(eager_cell), devices=CUDA, compiles=True),
    ),
    "batch_norm_elemt_backward": (
        Peer("eager torch", eager_batch_norm, devices=CPU),
        Peer("aten", aten_batch_norm, devices=CUDA),
        Peer("torch.compile", compiled(eager_batch_norm), devices=CUDA, compiles=True),
    ),
    "lstm_backward": (
        Peer("nn.LSTM", torch_lstm),
        Peer("nn.LSTM, no TF32", without_tf32(torch_lstm), devices=CUDA),
    ),
    "linear_cross_entropy_backward": (
        Peer("eager torch", eager_linear_cross_entropy),
        Peer("torch.compile", compiled(eager_linear_cross_entropy), devices=CUDA, compiles=True),
    ),
}


def peers_of(operator: str, device: str, compiling: bool = False) -> Sequence[Peer]:
    """The peers of an operator on this kind of device; those that take long to compile only if `compiling`."""
    return [peer for peer in PEERS.get(operator, ()) if device in peer.devices and (compiling or not peer.compiles)]
