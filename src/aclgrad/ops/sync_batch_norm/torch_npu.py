"""The family under the names of torch_npu, and torch's ops that it computes on the device "npu"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InvalidArgument
from .functional import (
    batch_norm_elemt,
    batch_norm_elemt_backward,
    batch_norm_gather_stats_with_counts,
    batch_norm_reduce_backward,
    batch_norm_stats,
)

__all__ = ["batch_norm_gather_stats_update", "batch_norm_reduce"]

ATEN: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats_with_counts,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_backward_reduce": batch_norm_reduce_backward,
    "batch_norm_backward_elemt": batch_norm_elemt_backward,
}


def batch_norm_reduce(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(sum, sum of squares) of every channel, float32 [C]: what `batch_norm_gather_stats_update` takes.

    Shapes: `input` [N, C, …]. `eps` has no effect.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> torch_npu.batch_norm_reduce(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 1e-5)
    (tensor([4., 6.]), tensor([10., 20.]))
    """
    del eps
    if input.dim() < 2:
        raise InvalidArgument(f"input has shape {list(input.shape)}, expected [N, C, …]", "input")
    values = input.to(torch.float64).transpose(0, 1).flatten(1)
    return values.sum(1).float(), values.square().sum(1).float()


def batch_norm_gather_stats_update(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """(mean, invstd) [C] of the whole batch from the sums of every process; updates the running statistics.

    Shapes: `input` [N, C, …] says how many channels there are; `mean` and `invstd` [W, C] are, whatever their names,
    the sums and the sums of squares that `batch_norm_reduce` returned in W processes; `counts` [W] how many values each
    has added up; the running statistics [C], both or none.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> x = torch.tensor([[1.0], [3.0]])
    >>> total, squares = torch_npu.batch_norm_reduce(x, 0.0)
    >>> torch_npu.batch_norm_gather_stats_update(x, total[None], squares[None], None, None, 0.1, 0.0, torch.tensor([2]))
    (tensor([2.]), tensor([1.]))
    """
    channels = input.shape[1] if input.dim() > 1 else -1
    for name, sums in (("mean", mean), ("invstd", invstd)):
        if sums.shape != (*counts.shape, channels) or counts.dim() != 1:
            raise InvalidArgument(f"{name} has shape {list(sums.shape)}, expected {[*counts.shape, channels]}", name)
    number = counts.to(torch.float64).sum()
    average = mean.to(torch.float64).sum(0) / number
    variance = (invstd.to(torch.float64).sum(0) / number - average.square()).clamp_min(0)
    if running_mean is not None:
        running_mean.lerp_(average.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = variance * (number / (number - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return average.to(mean.dtype), (variance + eps).rsqrt().to(mean.dtype)
