"""What the family is compared with: what a person would run today instead of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...testing.peers import CPU, CUDA, Peer, Prepared, compiled


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


def eager_elemt_backward(
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


def aten_gather(x: Tensor, mean: Tensor, invstd: Tensor, *others: Any) -> Prepared:
    """The operator behind nn.SyncBatchNorm, which takes float32 statistics of half batches alone."""
    statistics = mean.float(), invstd.float()
    return lambda: torch.batch_norm_gather_stats_with_counts(x, *statistics, *others)


def aten_elemt_backward(
    grad_out: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None,
    sum_dy: Tensor, sum_dy_xmu: Tensor, counter: Tensor,
) -> Prepared:  # fmt: skip
    """The operator behind nn.SyncBatchNorm."""
    count = counter.int()
    return lambda: torch.batch_norm_backward_elemt(grad_out, x, mean, invstd, weight, sum_dy, sum_dy_xmu, count)


def aten_training(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    momentum: float, eps: float,
) -> Prepared:  # fmt: skip
    """What nn.BatchNorm*d runs; half batches with float32 vectors, as under autocast."""
    return lambda: torch.native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)


def aten_training_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, invstd: Tensor, *wants: bool
) -> Prepared:
    """The gradient of nn.BatchNorm*d."""
    mask = list(wants)
    return lambda: torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, None, None, mean, invstd, True, 1e-5, mask
    )


PEERS: dict[str, tuple[Peer, ...]] = {
    "batch_norm_stats": (
        Peer("eager torch", eager_stats, devices=CPU),
        Peer("aten", lambda *args: lambda: torch.batch_norm_stats(*args), devices=CUDA),
    ),
    "batch_norm_gather_stats_with_counts": (
        Peer("eager torch", eager_gather, devices=CPU),
        Peer("aten", aten_gather, devices=CUDA),
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
    "batch_norm_elemt_backward": (
        Peer("eager torch", eager_elemt_backward, devices=CPU),
        Peer("aten", aten_elemt_backward, devices=CUDA),
        Peer("torch.compile", compiled(eager_elemt_backward), devices=CUDA, compiles=True),
    ),
    "batch_norm": (Peer("aten", aten_training, devices=(*CPU, *CUDA)),),
    "batch_norm_backward": (Peer("aten", aten_training_backward, devices=(*CPU, *CUDA)),),
}
