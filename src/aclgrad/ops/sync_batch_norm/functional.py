"""The family's functions, in the order in which a synchronised layer calls them."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from . import spec

Sums = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def batch_norm_stats(
    input: Tensor,
    eps: float,
    *,
    out: tuple[Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(mean, invstd) of every channel: invstd is 1 / √(variance + eps), with the biased variance.

    Shapes: `input` [N, C, …] of rank 2 or more, in any memory layout; both results [C], float32 for inputs in float16,
    bfloat16 or float32, and float64 for float64. An empty batch has the mean 0 and the invstd NaN.

    >>> import torch, aclgrad
    >>> aclgrad.batch_norm_stats(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), 0.0625)
    (tensor([2., 5.]), tensor([0.9701, 4.0000]))
    """
    return cast(tuple[Tensor, Tensor], spec.batch_norm_stats(input, eps, out=out, backend=backend))


def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
    *,
    out: tuple[Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(mean, invstd) of the whole batch from the `batch_norm_stats` of W processes; updates the running statistics.

    Shapes: `mean` and `invstd` [W, C]; `counts` [W], how many elements a channel has in each process; the results [C].
    Of `input` [N, C, …] only the number of channels and the dtype count. `running_mean` and `running_var` [C], if
    given, move towards the mean and the unbiased variance by the share `momentum`, in place. Any mix of float16,
    bfloat16, float32 and float64, counts also integers; the results have the dtype that `mean` and `input` promote to.

    >>> import torch, aclgrad
    >>> x = torch.empty(2, 1)
    >>> parts = torch.tensor([[2.0], [6.0]]), torch.tensor([[1.0], [1.0]])
    >>> running = torch.zeros(1), torch.ones(1)
    >>> aclgrad.batch_norm_gather_stats_with_counts(x, *parts, *running, 0.5, 0.0, torch.tensor([3.0, 1.0]))
    (tensor([3.]), tensor([0.5000]))
    >>> running
    (tensor([1.5000]), tensor([3.1667]))
    """
    operands = (input, mean, invstd, running_mean, running_var, momentum, eps, counts)
    results = spec.batch_norm_gather_stats_with_counts(*operands, out=out, backend=backend)
    return cast(tuple[Tensor, Tensor], results)


def batch_norm_elemt(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
    *,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Batch norm with given statistics: (input − mean)·invstd·weight + bias.

    Shapes: `input` and the result [N, C, …] of rank 2 or more, in any memory layout (the input's is kept); the vectors
    [C]. A `weight` of None counts as ones, a `bias` of None as zeros. `eps` is in `invstd` already and changes nothing.
    Dtypes: any mix of float16, bfloat16, float32 and float64, computed in float32 (float64 if `input` is) and rounded
    once; the result has the input's dtype unless `out` decides.

    >>> import torch, aclgrad
    >>> x = torch.arange(4.0).view(2, 2)
    >>> aclgrad.batch_norm_elemt(x, None, torch.ones(2), torch.tensor([1.0, 2.0]), torch.full((2,), 0.5), 1e-5)
    tensor([[0.5000, 0.5000],
            [1.5000, 1.5000]])
    """
    return cast(Tensor, spec.batch_norm_elemt(input, weight, bias, mean, invstd, eps, out=out, backend=backend))


def batch_norm_reduce_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
    *,
    out: Sums | None = None,
    backend: str | None = None,
) -> Sums:
    """The sums over this process's batch that the gradient of synchronised batch norm is made of.

    Returns (sum_dy, sum_dy_xmu, grad_weight, grad_bias), [C] each: Σ grad_out and Σ grad_out·(input − mean) if
    `input_g`, the latter times invstd if `weight_g`, the former if `bias_g`; None where the flag is false. Of an empty
    batch all are zero. `weight` changes nothing.

    Shapes: `grad_out` and `input` [N, C, …] of rank 2 or more, of one dtype, each in any memory layout; `mean` and
    `invstd` [C] are those of the whole batch. The results have the dtype that `input` and `mean` promote to.

    >>> import torch, aclgrad
    >>> x, grad = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [2.0]])
    >>> aclgrad.batch_norm_reduce_backward(grad, x, torch.tensor([2.0]), torch.tensor([0.5]), None, True, True, True)
    (tensor([3.]), tensor([1.]), tensor([0.5000]), tensor([3.]))
    """
    operands = (grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g)
    return cast(Sums, spec.batch_norm_reduce_backward(*operands, out=out, backend=backend))


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

    Shapes: `grad_out`, `input` and the result [N, C, …] of rank 2 or more, in any memory layout (the input's is kept);
    the vectors [C]; `counter` a tensor of any shape, or a number. A `weight` of None counts as ones. Dtypes: any mix of
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
