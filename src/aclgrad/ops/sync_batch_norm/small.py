"""Small batches in evaluation on a CPU: torch's own operations serve them.

They do not take torch's kernel: that writes x·scale + (bias − mean·scale), which far from zero is the difference of two
large numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from .._shared.small import REFUSALS, is_exact, is_served

FLAT, PLANES = 1 << 16, 1 << 12
"""Elements up to which that is quicker: of batches [N, C], and of those with planes."""

_PLAIN = (Tensor, Parameter, type(None))


def _is_small(input: Tensor, vectors: tuple[Tensor | None, ...], most: int) -> bool:
    if not is_served(input) or not is_exact(input) or not 0 < input.numel() <= most:  # a tracer would keep the bound
        return False
    dtype = input.dtype
    return input.is_contiguous() and all(type(v) in _PLAIN and (v is None or v.dtype == dtype) for v in vectors)


def by_running_statistics(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor | None:
    """A batch norm by given statistics; None where a kernel is to do it."""
    flat = input.dim() == 2
    if not _is_small(input, (weight, bias, mean, var), FLAT if flat else PLANES):
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
