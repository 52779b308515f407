"""hardsigmoid can be differentiated any number of times: its gradient is linear in the incoming one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Composed, Gradient


def _keep_x(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    *_, x = inputs
    ctx.save_for_backward(x)


def _scaled(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    slope: Tensor = torch.ops.aclgrad.hardsigmoid_backward(grad, x)
    return slope.to(grad.dtype)


def _hardsigmoid(ctx: Any, grad: Tensor) -> Tensor:
    return _scaled(ctx, grad)


def _hardsigmoid_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """With respect to grad_output; the slope in x is constant wherever it is defined."""
    return _scaled(ctx, grad), None


def _in_place(x: Tensor) -> None:
    """The gradient needs what was there."""
    x.copy_(torch.ops.aclgrad.hardsigmoid(x.clone()))


GRADIENTS = {
    "hardsigmoid": Gradient(_keep_x, _hardsigmoid),
    "hardsigmoid_": Composed(_in_place),
    "hardsigmoid_backward": Gradient(_keep_x, _hardsigmoid_backward),
}
