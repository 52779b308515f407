"""The textbook: batch norm over all dimensions but the channel's, and the element-wise part of its gradient."""

from __future__ import annotations

from torch import Tensor


def batch_norm(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean [C], invstd [C]) with the biased variance, as one process sees the whole batch."""
    axes = [0, *range(2, x.dim())]
    mean, variance = x.mean(axes), x.var(axes, unbiased=False)
    invstd = (variance + eps) ** -0.5
    y = (x - along_channels(mean, x)) * along_channels(invstd, x)
    return (y if weight is None else y * along_channels(weight, x)), mean, invstd


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
