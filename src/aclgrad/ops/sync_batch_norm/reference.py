"""The textbook: batch norm over all dimensions but the channel's, in the steps of a synchronised layer."""

from __future__ import annotations

import torch
from torch import Tensor

Sums = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """(y, mean [C], invstd [C]) with the biased variance, and the running statistics moved; a process has all of x."""
    mean, invstd = batch_norm_stats(input, eps)
    y = batch_norm_elemt(input, weight, bias, mean, invstd, eps)
    if input.numel() == 0 or running_mean is None or running_var is None:
        return y, mean, invstd, running_mean, running_var
    n = input.numel() // input.shape[1]
    unbiased = _moments(input)[1] * (n / (n - 1) if n > 1 else torch.nan)
    moved_mean = (1 - momentum) * running_mean + momentum * mean
    return y, mean, invstd, moved_mean, (1 - momentum) * running_var + momentum * unbiased


def batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    wants_input: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of input, weight and bias, with mean and invstd as functions of the input."""
    sums = batch_norm_reduce_backward(grad_out, input, mean, invstd, weight, wants_input, wants_weight, wants_bias)
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = sums
    if input.numel() == 0 and grad_weight is not None:
        grad_weight = torch.zeros_like(grad_weight)  # statistics of nothing are NaN
    if sum_dy is None or sum_dy_xmu is None:
        return None, grad_weight, grad_bias
    count = sum_dy.new_full((), input.numel() // input.shape[1])
    grad = batch_norm_elemt_backward(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count)
    return grad, grad_weight, grad_bias


def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(mean, 1 / √(variance + eps)) of every channel, with the biased variance; (0, NaN) of an empty batch."""
    if input.numel() == 0:
        mean = input.new_zeros(input.shape[1])
        return mean, torch.full_like(mean, torch.nan)
    mean, variance = _moments(input)
    return mean, (variance + eps) ** -0.5


def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """(mean, invstd) of the union of W batches, and the running statistics moved towards them.

    The variance of the whole is the mean of the parts' variances plus the variance of the parts' means.
    """
    if mean.numel() == 0:
        nothing = mean.new_zeros(input.shape[1])
        return nothing, torch.full_like(nothing, torch.nan), running_mean, running_var
    each = counts.to(mean.dtype)[:, None]
    n = each.sum()
    mean_all = (mean * each).sum(0) / n
    squares = ((invstd**-2 - eps + (mean - mean_all) ** 2) * each).sum(0)
    invstd_all = (squares / n + eps) ** -0.5
    if running_mean is None or running_var is None:
        return mean_all, invstd_all, running_mean, running_var
    moved_mean = (1 - momentum) * running_mean + momentum * mean_all
    moved_var = (1 - momentum) * running_var + momentum * (squares / (n - 1))
    return mean_all, invstd_all, moved_mean, moved_var


def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """(input − mean)·(invstd·weight) + bias; `eps` is in invstd already."""
    del eps
    scale = invstd if weight is None else invstd * weight
    y = (input - along_channels(mean, input)) * along_channels(scale, input)
    return y if bias is None else y + along_channels(bias, input)


def batch_norm_reduce_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> Sums:
    """(Σ grad_out, Σ grad_out·(input − mean), the latter times invstd, the former again), as far as asked for."""
    del weight
    axes = _all_but_channels(input)
    sum_dy = grad_out.sum(axes)
    sum_dy_xmu = (grad_out * (input - along_channels(mean, input))).sum(axes)
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        sum_dy_xmu * invstd if weight_g else None,
        sum_dy.clone() if bias_g else None,
    )


def batch_norm_elemt_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counter: Tensor,
) -> Tensor:
    """((grad_out − sum_dy/n) − (input − mean)·(invstd²·sum_dy_xmu/n)) · (invstd·weight), n = counter.sum()."""
    n = counter.to(input.dtype).sum()
    scale = invstd if weight is None else invstd * weight
    centred = grad_out - along_channels(sum_dy / n, input)
    projected = (input - along_channels(mean, input)) * along_channels(invstd * invstd * (sum_dy_xmu / n), input)
    return (centred - projected) * along_channels(scale, input)


def along_channels(vector: Tensor, x: Tensor) -> Tensor:
    """A [C] vector shaped to broadcast along dimension 1 of x."""
    return vector.view(1, -1, *[1] * (x.dim() - 2))


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel. `Tensor.var` loses some digits, adding one number after another."""
    axes = _all_but_channels(x)
    mean = x.mean(axes)
    return mean, (x - along_channels(mean, x)).square().mean(axes)


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]
