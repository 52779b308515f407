"""What the forward operators are compared with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from aclgrad.ops.lstm.spec import lstm

from .peer import CPU, CUDA, Peer, Prepared, compiled, loaded, named, without_tf32


def aten_hardsigmoid(x: Tensor) -> Prepared:
    """The operator torch has built in."""
    out = torch.empty_like(x)
    return lambda: torch.ops.aten.hardsigmoid.out(x, out=out)


def eager_cell(x: Tensor, h: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None) -> Prepared:
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


def aten_cell(x: Tensor, h: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None) -> Prepared:
    """The operator behind nn.LSTMCell on a GPU."""
    return lambda: torch.ops.aten._thnn_fused_lstm_cell(x, h, cx, input_bias, hidden_bias)


def torch_lstm(*args: Any) -> Prepared:
    """The forward pass of nn.LSTM in training, which keeps what its backward pass needs, as ours does."""
    given = named(lstm, args)
    x, params, hx = given["input"], given["params"], given["hx"]
    options = (given["num_layers"], given["has_bias"], given["batch_first"])
    empty = nn.LSTM(x.shape[2], params[1].shape[1], *options, bidirectional=given["bidirectional"])
    module = loaded(empty, x, params)
    leaf = x.detach().requires_grad_()

    def run() -> tuple[Tensor, Tensor, Tensor]:
        y, (hy, cy) = module(leaf, None if hx is None else tuple(hx))
        return y.detach(), hy.detach(), cy.detach()

    return run


def eager_stats(x: Tensor, eps: float) -> Prepared:
    """Torch's variance and mean of every channel."""
    axes = [axis for axis in range(x.dim()) if axis != 1]

    def run() -> tuple[Tensor, Tensor]:
        var, mean = torch.var_mean(x.float() if x.dtype != torch.float64 else x, axes, correction=0)
        return mean, torch.rsqrt(var + eps)

    return run


def eager_gather(
    x: Tensor,  # noqa: ARG001  only its channels are of interest
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> Prepared:
    """The formula line by line."""

    def run() -> tuple[Tensor, Tensor]:
        n, share = counts.sum(), counts[:, None]
        mean_all = (mean * share).sum(0) / n
        total = ((1 / invstd.square() - eps + (mean - mean_all).square()) * share).sum(0)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean_all.to(running_mean.dtype), momentum)
            running_var.lerp_((total / (n - 1)).to(running_var.dtype), momentum)
        return mean_all, torch.rsqrt(total / n + eps)

    return run


def eager_elemt(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,  # noqa: ARG001
) -> Prepared:
    """The formula with vectors broadcast along the channels."""
    shape = [1, -1, *[1] * (x.dim() - 2)]

    def run() -> Tensor:
        result = (x - mean.view(shape)) * invstd.view(shape)
        if weight is not None:
            result = result * weight.view(shape)
        return (result if bias is None else result + bias.view(shape)).to(x.dtype)

    return run


def eager_reduce(
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None,  # noqa: ARG001
    input_g: bool, weight_g: bool, bias_g: bool,  # noqa: ARG001  all are asked for
) -> Prepared:  # fmt: skip
    """Two sums over the batch."""
    axes = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]

    def run() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        sum_dy = grad.sum(axes, dtype=mean.dtype)
        sum_dy_xmu = (grad * (x - mean.view(shape))).sum(axes)
        return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()

    return run


def eager_statistics(x: Tensor, w: Tensor, target: Tensor, start: int, end: int) -> Prepared:
    """All logits of the shard at once, then their maximum, sum and the targets' own."""

    def run() -> tuple[Tensor, Tensor, Tensor]:
        logits = (x @ w.t()).float()
        top, _ = logits.max(dim=1)
        shifted = logits.sub_(top[:, None])
        missing = (target < start) | (target >= end)
        row = torch.where(missing, 0, target - start)
        predicted = torch.where(missing, 0.0, shifted.gather(1, row[:, None].long()).squeeze(1))
        return top, shifted.exp_().sum(dim=1), predicted

    return run


def eager_loss(top: Tensor, total: Tensor, predicted: Tensor, *rest: Any) -> Prepared:
    """The formula line by line."""
    *_, logits = rest

    def run() -> tuple[Tensor, ...]:
        loss = total.log() - predicted
        return (loss,) if logits is None else (loss, (logits.float() - top[:, None]).exp_().div_(total[:, None]))

    return run


FORWARD: dict[str, tuple[Peer, ...]] = {
    "hardsigmoid": (Peer("aten", aten_hardsigmoid, writes_out=True),),
    "hardsigmoid_": (Peer("aten", lambda x: lambda: torch.ops.aten.hardsigmoid_(x)),),
    "lstm_cell": (
        Peer("eager torch", eager_cell, devices=CPU),
        Peer("aten", aten_cell, devices=CUDA),
        Peer("torch.compile", compiled(eager_cell), devices=CUDA, compiles=True),
    ),
    "lstm": (
        Peer("nn.LSTM", torch_lstm),
        Peer("nn.LSTM, no TF32", without_tf32(torch_lstm), devices=CUDA),
    ),
    "batch_norm_stats": (
        Peer("eager torch", eager_stats, devices=CPU),
        Peer("aten", lambda *args: lambda: torch.batch_norm_stats(*args), devices=CUDA),
    ),
    "batch_norm_gather_stats_with_counts": (
        Peer("eager torch", eager_gather, devices=CPU),
        Peer("aten", lambda *args: lambda: torch.batch_norm_gather_stats_with_counts(*args), devices=CUDA),
    ),
    "batch_norm_elemt": (
        Peer("eager torch", eager_elemt, devices=CPU),
        Peer("aten", lambda *args: lambda: torch.batch_norm_elemt(*args), devices=CUDA),
        Peer("torch.compile", compiled(eager_elemt), devices=CUDA, compiles=True),
    ),
    "batch_norm_reduce_backward": (
        Peer("eager torch", eager_reduce, devices=CPU),
        Peer("aten", lambda *args: lambda: torch.batch_norm_backward_reduce(*args), devices=CUDA),
    ),
    "linear_online_max_sum": (Peer("eager torch", eager_statistics),),
    "cross_entropy_with_max_sum": (Peer("eager torch", eager_loss),),
}
