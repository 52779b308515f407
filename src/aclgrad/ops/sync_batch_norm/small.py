"""Small batches on a CPU: torch's own operations serve them, where they are as exact as a kernel.

Torch's kernel writes x·scale + (bias − mean·scale), which far from zero is the difference of two large numbers. In
training it tells mean and deviation, by which its output is taken or left; in evaluation the running statistics tell
before, and far from zero other operations do it. Half types are rounded once where the statistics are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...core.autograd import again
from .._shared.small import REFUSALS, WIDE, is_served, restate
from .autograd import formula

FLAT, PLANES = 1 << 16, 3 << 13
"""Elements up to which that is quicker in training: of batches [N, C], and of those with planes."""

FEWEST = 4
"""Values of a channel below which one or another is likely to lie far from zero, and the kernel would come after it."""

FIXED = 1 << 20
"""The same in evaluation."""

FLAT_FAR, PLANES_FAR = 1 << 16, 1 << 12
"""The same in evaluation far from zero, by several operations."""

NEAR = 4.0
"""Standard deviations between zero and a channel's mean, up to which no digits are lost: errors are of few ulp of the
largest results then, whose own inputs are as far from their mean."""

_PLAIN = (Tensor, Parameter)


def _is_small(input: Tensor, vectors: Sequence[Tensor | None], most: int) -> bool:
    """Whether torch may have a batch: of so many elements at most, with vectors of its dtype, or of float32.

    Their shapes are looked at, since torch's operation does not.
    """
    if not is_served(input) or not 0 < input.numel() <= most:  # a tracer would keep the bound
        return False
    if not input.is_contiguous() or torch.is_autocast_enabled("cpu"):
        return False
    dtypes, shape = set(), (input.shape[1],)
    for vector in vectors:
        if vector is not None:
            if type(vector) not in _PLAIN or vector.shape != shape:
                return False
            dtypes.add(vector.dtype)
    return dtypes <= {input.dtype} or (dtypes == {torch.float32} and input.dtype in (torch.float16, torch.bfloat16))


def by_the_batch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor | None:
    """A batch norm by the batch's own statistics, which moves the running ones; None where a kernel is to do it."""
    vectors = (weight, bias, mean, var)
    if input.dtype not in WIDE and all(vector is None or vector.dtype == input.dtype for vector in vectors):
        return None  # torch would round the batch's statistics
    if not _is_small(input, vectors, FLAT if input.dim() == 2 else PLANES) or input.numel() < FEWEST * input.shape[1]:
        return None
    try:
        before = None if mean is None or var is None else torch.cat((mean, var))
        output, centre, invstd = torch.native_batch_norm(input, weight, bias, mean, var, True, momentum, eps)
    except REFUSALS:  # said better where a kernel does it
        return None
    low, high = (centre * invstd).aminmax()
    if not (float(low) >= -NEAR and float(high) <= NEAR):
        if mean is not None and var is not None and before is not None:
            mean.copy_(before[: len(mean)])
            var.copy_(before[len(mean) :])
        return None
    if output.grad_fn is not None:

        def gradients(x: Tensor, found: Sequence[Any], upstream: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(again(formula, (x, weight, bias, eps), upstream[:1], (*found, None))[:-1])

        restate(output.grad_fn, input, gradients)  # torch's takes the statistics for constants: wrong from the third on
    return output


def by_running_statistics(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor | None:
    """A batch norm by given statistics; None where a kernel is to do it."""
    if not _is_small(input, (weight, bias, mean, var), FIXED):
        return None
    try:
        if mean.requires_grad or var.requires_grad or not _are_near(mean, var, eps):
            return _step_by_step(input, weight, bias, mean, var, eps)
        return torch.native_batch_norm(input, weight, bias, mean, var, False, 0.0, eps)[0]
    except REFUSALS:
        return None


def _are_near(mean: Tensor, var: Tensor, eps: float) -> bool:
    """Whether no mean is further than `NEAR` deviations from zero: the least of variance + eps − (mean / NEAR)²."""
    return float(torch.addcmul(var, mean, mean, value=-(NEAR**-2)).min()) >= -eps


def _step_by_step(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor | None:
    flat = input.dim() == 2
    if input.dtype not in WIDE or input.numel() > (FLAT_FAR if flat else PLANES_FAR):
        return None
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    if not flat:
        shape = (-1, *[1] * (input.dim() - 2))
        mean, scale = mean.view(shape), scale.view(shape)
        bias = None if bias is None else bias.view(shape)
    away = input - mean
    return away * scale if bias is None else torch.addcmul(bias, away, scale)
