"""Linear cross entropy as a differentiable function of its input and weight.

A scalar loss brings its gradients along; what arrives from above scales them, in place since they are as large as the
weight. Losses of single tokens are differentiated by an operator that computes the logits once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient, final
from ...core.dispatch import is_plain

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


@torch.no_grad()
def _scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    """In place, unless it is traced or mapped: a graph may not change what its forward part returned."""
    if not is_plain(factor, gradient):
        return (gradient.to(factor.dtype) * factor).to(gradient.dtype)  # as `scale_` rounds
    torch.ops.aclgrad.scale_(gradient, factor)
    return gradient


def _keep_statistics(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    x, weight, target, ctx.ignored = inputs
    _, *statistics = output
    ctx.save_for_backward(x, weight, target, *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)


def _token_losses(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
    if grad is None:
        return (None,) * 4
    x, weight, target, *statistics = ctx.saved_tensors
    wants = ctx.needs_input_grad[:2]
    arguments = (grad, x, weight, target, ctx.ignored, *statistics)
    found = torch.ops.aclgrad.token_gradients(*arguments, *wants)
    wanted = [gradient if want else None for gradient, want in zip(found, wants, strict=True)]
    return *final(ONCE, wanted, x, weight, grad), None, None


GRADIENTS = {
    "loss_and_gradients": Gradient(_keep_gradients, _loss),
    "token_losses": Gradient(_keep_statistics, _token_losses),
}
