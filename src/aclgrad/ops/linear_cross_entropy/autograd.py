"""Linear cross entropy as a differentiable function of its input and weight.

A scalar loss brings its gradients along; what arrives from above scales them, in place since they are as large as the
weight. Losses of single tokens are differentiated by the gradient operator, which computes the logits once more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, final
from ...core.dispatch import is_plain
from . import training
from .scale import scale_

ONCE = "the gradient of linear_cross_entropy cannot be differentiated again; cross_entropy(linear(…)) can"


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, target, *ctx.attributes = inputs
    _, *ctx.gradients = output
    ctx.save_for_backward(x, weight, target)
    ctx.mark_non_differentiable(*ctx.gradients)
    ctx.set_materialize_grads(False)  # zeros for the gradients' own gradients would be as large as they are


def _loss(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    nothing = [None] * (1 + len(ctx.attributes))
    if grad is None:
        return None, None, *nothing
    gradients, ctx.gradients = ctx.gradients, None
    attributes, made = ctx.attributes[:-2], ctx.attributes[-2:]
    wants = ctx.needs_input_grad[:2]
    used_up = gradients is None  # by an earlier backward pass over a graph that was kept
    if used_up or any(want and not there for want, there in zip(wants, made, strict=True)):  # as a graph recorded it
        _, *gradients = torch.ops.aclgrad.loss_and_gradients(*ctx.saved_tensors, *attributes, *wants)
    scaled = [_scaled(gradient, grad) if want else None for gradient, want in zip(gradients, wants, strict=True)]
    return *final(ONCE, scaled, *ctx.saved_tensors[:2], grad), *nothing


def _scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    """In place, unless it is traced: a graph may not change what its forward part returned."""
    if not is_plain(factor, gradient):
        return gradient * factor.to(gradient.dtype)
    torch.ops.aclgrad.scale_(gradient, factor)
    return gradient


GRADIENTS = {"loss_and_gradients": Gradient(_keep_gradients, _loss)}
FURTHER = (training.together, scale_)
"""Operators that no document knows."""


class PerToken(torch.autograd.Function):
    """The loss of every token [BT]."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        """`arguments`: input [BT, H], weight [V, H], target [BT], ignore_index."""
        x, weight, target, ctx.ignored = arguments
        loss, state = training.forward(x, weight, target, ignore_index=ctx.ignored, reduction="none")
        ctx.save_for_backward(x, weight, target, *state)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """By the operator that recomputes the logits."""
        x, weight, target, *state = ctx.saved_tensors
        wants_x, wants_weight, *_ = ctx.needs_input_grad
        found = training.backward(
            gradients[0], x, weight, target, training.State(*state), ignore_index=ctx.ignored, reduction="none",
            wants_input_grad=wants_x, wants_weight_grad=wants_weight,
        )  # fmt: skip
        return *final(ONCE, found, x, weight, *gradients), None, None
