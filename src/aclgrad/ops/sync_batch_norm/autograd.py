"""Batch normalisation in training as one differentiable function of its input, weight and bias.

The statistics are functions of the input too; their share of the gradient is in the sums that the backward pass takes
over the batch, so they enter `Normalised` as constants. What is differentiated again, and in forward mode, is the
textbook formula of the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...core.autograd import again
from . import reference


def normalised(*arguments: Any) -> Tensor:
    """`Normalised` of these arguments, also in forward mode and where a transform of `torch.func` is active."""
    if forward_ad._current_level >= 0:
        return _formula(*arguments)
    node = _Transformed if torch._C._are_functorch_transforms_active() else Normalised
    return node.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


class Normalised(torch.autograd.Function):
    """(x - mean) * invstd * weight + bias, differentiated with mean and invstd as functions of x."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """`arguments`: input, weight, bias, mean, invstd, counts [1], eps."""
        _keep(ctx, arguments)
        return _elements(*arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """In the order of the arguments; can be differentiated."""
        (grad,) = gradients
        x, weight, mean, *_ = ctx.saved_tensors
        with torch.no_grad():
            found = _gradients(ctx, grad)
        bias = torch.zeros_like(mean) if ctx.needs_input_grad[2] else None  # its values are of no interest
        inputs = (x, weight, bias, *[None] * 3, ctx.eps)
        return tuple(again(_formula, inputs, gradients, (*found, *[None] * 4)))


def _gradients(ctx: Any, grad: Tensor) -> list[Tensor | None]:
    """Two sums over the batch, then one pass."""
    x, weight, mean, invstd, counts = ctx.saved_tensors
    wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.ops.aclgrad.batch_norm_reduce_backward(
        grad, x, mean, invstd, weight, wants_x, wants_weight, wants_bias
    )
    if x.numel() == 0:
        grad_weight = torch.zeros_like(grad_weight)  # statistics of nothing are NaN
    grad_x = None
    if wants_x:
        grad_x = torch.ops.aclgrad.batch_norm_elemt_backward(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)
    return [grad_x, grad_weight if wants_weight else None, grad_bias if wants_bias else None]


def _formula(x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
    """The same in torch's own operations, from the batch alone."""
    wide = torch.promote_types(x.dtype, torch.float32)
    *_, eps = rest
    y, _, _ = reference.batch_norm(x.to(wide), None if weight is None else weight.to(wide), eps)
    return (y if bias is None else y + reference.along_channels(bias.to(wide), x)).to(x.dtype)


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
    x, weight, _, mean, invstd, counts, ctx.eps = arguments
    ctx.save_for_backward(x, weight, mean, invstd, counts)


def _elements(*arguments: Any) -> Tensor:
    x, weight, bias, mean, invstd, _, eps = arguments
    return torch.ops.aclgrad.batch_norm_elemt(x, weight, bias, mean, invstd, eps)  # type: ignore[no-any-return]
