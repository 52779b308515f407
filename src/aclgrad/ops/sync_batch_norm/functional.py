"""The family's functions."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from . import spec


def batch_norm_elemt_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counter: Tensor | float,
    *,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Element-wise part of the gradient of synchronised batch norm.

    ((grad_out − sum_dy/n) − (input − mean)·invstd²·sum_dy_xmu/n) · invstd·weight, where n is the sum of `counter`, and
    `sum_dy`, `sum_dy_xmu` are the sums of grad_out and of grad_out·(input − mean) over all processes.

    Shapes: `grad_out`, `input` and the result [N, C, …] of rank 2 to 8, in any memory layout (the input's is kept); the
    vectors [C]; `counter` a tensor of any shape, or a number. A `weight` of None counts as ones. Dtypes: any mix of
    float16, bfloat16, float32 and float64, computed in float32 (float64 if `grad_out` or `input` is) and rounded once;
    the result has the input's dtype unless `out` decides.

    >>> import torch, aclgrad
    >>> x = torch.arange(4.0).view(2, 2)
    >>> zeros, ones = torch.zeros(2), torch.ones(2)
    >>> aclgrad.batch_norm_elemt_backward(x, x, zeros, ones, None, zeros, ones, 10)
    tensor([[0.0000, 0.9000],
            [1.8000, 2.7000]])
    """
    if isinstance(counter, int | float):
        device = input.device if isinstance(input, Tensor) else None
        whole = float(counter).is_integer() and abs(counter) < 2**63  # which a kernel without float64 takes as well
        counter = torch.full((1,), counter, dtype=torch.int64 if whole else torch.float64, device=device)
    operands = (grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, counter)
    return cast(Tensor, spec.batch_norm_elemt_backward(*operands, out=out, backend=backend))
