"""Batch normalisation in training as one differentiable function of its input, weight and bias.

The statistics are functions of the input too; their share of the gradient is in the sums that the backward pass takes
over the batch, so they enter `Normalised` as constants.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def normalised(*arguments: Any) -> Tensor:
    """`Normalised` of these arguments, also where a transform of `torch.func` is active."""
    node = _Transformed if torch._C._are_functorch_transforms_active() else Normalised
    return node.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


class Normalised(torch.autograd.Function):
    """(x - mean) * invstd * weight + bias, differentiated with mean and invstd as functions of x."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """`arguments`: input, weight, bias, mean, invstd, counts [W], eps, and how sums are reduced (or None)."""
        _keep(ctx, arguments)
        return _elements(*arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Two sums over the batch, then one pass."""
        (grad,) = gradients
        x, weight, mean, invstd, counts = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.ops.aclgrad.batch_norm_reduce_backward(
            grad, x, mean, invstd, weight, wants_x, wants_weight, wants_bias
        )
        if x.numel() == 0:
            grad_weight = torch.zeros_like(grad_weight)  # statistics of nothing are NaN
        grad_x = None
        if wants_x:
            if ctx.reduce is not None:
                sum_dy, sum_dy_xmu = ctx.reduce(sum_dy, sum_dy_xmu)
            grad_x = torch.ops.aclgrad.batch_norm_elemt_backward(
                grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts
            )
        return grad_x, grad_weight if wants_weight else None, grad_bias if wants_bias else None, *[None] * 5


class _Transformed(Normalised):
    """The same in the form that `torch.func` asks for, which takes every call some microseconds more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _elements(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _keep(ctx, inputs)


def _keep(ctx: Any, arguments: tuple[Any, ...]) -> None:
    x, weight, _, mean, invstd, counts, _, ctx.reduce = arguments
    ctx.save_for_backward(x, weight, mean, invstd, counts)


def _elements(*arguments: Any) -> Tensor:
    x, weight, bias, mean, invstd, _, eps, _ = arguments
    return torch.ops.aclgrad.batch_norm_elemt(x, weight, bias, mean, invstd, eps)  # type: ignore[no-any-return]
