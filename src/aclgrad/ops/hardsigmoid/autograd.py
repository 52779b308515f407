"""hardsigmoid can be differentiated any number of times: its gradient is linear in the incoming one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Composed, Gradient, past_transforms
from ...core.dispatch import is_plain
from . import spec


def _keep_x(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    *_, x = inputs
    ctx.save_for_backward(x)


def _scaled(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    slope = None if torch.is_grad_enabled() else spec.hardsigmoid_backward.direct((grad, x))
    if slope is None:
        slope = torch.ops.aclgrad.hardsigmoid_backward(grad, x)
    return slope if slope.dtype == grad.dtype else slope.to(grad.dtype)  # type: ignore[no-any-return]


def _hardsigmoid(ctx: Any, grad: Tensor) -> Tensor:
    return _scaled(ctx, grad)


def _hardsigmoid_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """With respect to grad_output; the slope in x is constant wherever it is defined."""
    return _scaled(ctx, grad), None


def smoothed(x: Tensor) -> Tensor:
    """`hardsigmoid`, past torch's dispatcher where that need not know."""
    if torch._C._are_functorch_transforms_active() or not is_plain(x):
        return torch.ops.aclgrad.hardsigmoid(x)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and x.requires_grad:
        return _smoothed(x)  # type: ignore[no-any-return]
    return spec.hardsigmoid.run((x,))  # type: ignore[no-any-return]


class Smoothed(torch.autograd.Function):
    """min(max((x + 3) / 6, 0), 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Of a value in memory."""
        ctx.save_for_backward(x)
        return spec.hardsigmoid.run((x,))  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Can be differentiated."""
        return _scaled(ctx, *gradients)


_smoothed = past_transforms(Smoothed)


def _in_place(x: Tensor) -> None:
    """The gradient needs what was there."""
    x.copy_(torch.ops.aclgrad.hardsigmoid(x.clone()))


GRADIENTS = {
    "hardsigmoid": Gradient(_keep_x, _hardsigmoid),
    "hardsigmoid_": Composed(_in_place),
    "hardsigmoid_backward": Gradient(_keep_x, _hardsigmoid_backward),
}
