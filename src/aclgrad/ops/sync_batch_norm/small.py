"""Small batches on a CPU: torch's own operations serve them, where they are as exact as a kernel.

Torch's kernel writes x·scale + (bias − mean·scale), which far from zero is the difference of two large numbers. In
training it tells mean and deviation, by which its output is taken or left; in evaluation other operations do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...core.autograd import again
from .._shared.small import REFUSALS, is_exact, is_served, restate
from .autograd import formula

FLAT, PLANES = 1 << 16, 1 << 14
"""Elements up to which that is quicker in training: of batches [N, C], and of those with planes."""

FLAT_FIXED, PLANES_FIXED = 1 << 16, 1 << 12
"""The same in evaluation."""

NEAR = 4.0
"""Standard deviations between zero and a channel's mean, up to which no digits are lost: errors are of few ulp of the
largest results then, whose own inputs are as far from their mean."""

_PLAIN = (Tensor, Parameter, type(None))


def _is_small(input: Tensor, vectors: tuple[Tensor | None, ...], most: int) -> bool:
    if not is_served(input) or not is_exact(input) or not 0 < input.numel() <= most:  # a tracer would keep the bound
        return False
    dtype = input.dtype
    return input.is_contiguous() and all(type(v) in _PLAIN and (v is None or v.dtype == dtype) for v in vectors)


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
    if not _is_small(input, (weight, bias, mean, var), FLAT if input.dim() == 2 else PLANES):
        return None
    before = [(running, running.clone()) for running in (mean, var) if running is not None]
    try:
        output, centre, invstd = torch.native_batch_norm(input, weight, bias, mean, var, True, momentum, eps)
    except REFUSALS:  # said better where a kernel does it
        return None
    low, high = (centre * invstd).aminmax()
    if not (float(low) >= -NEAR and float(high) <= NEAR):
        for running, value in before:
            running.copy_(value)
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
    flat = input.dim() == 2
    if not _is_small(input, (weight, bias, mean, var), FLAT_FIXED if flat else PLANES_FIXED):
        return None
    try:
        scale = (var + eps).rsqrt()
        if weight is not None:
            scale = scale * weight
        if not flat:
            shape = (-1, *[1] * (input.dim() - 2))
            mean, scale = mean.view(shape), scale.view(shape)
            bias = None if bias is None else bias.view(shape)
        away = input - mean
        return away * scale if bias is None else torch.addcmul(bias, away, scale)
    except REFUSALS:
        return None
