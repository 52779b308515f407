"""hardsigmoid can be differentiated any number of times: its gradient is linear in the incoming one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Composed, Gradient
from ...core.direct import past_dispatcher
from . import spec


def _keep_x(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    *_, x = inputs
    ctx.save_for_backward(x)


def _scaled(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    slope = _slope(grad, x)
    return slope if slope.dtype == grad.dtype else slope.to(grad.dtype)  # type: ignore[no-any-return]


def _hardsigmoid(ctx: Any, grad: Tensor) -> Tensor:
    return _scaled(ctx, grad)


def _hardsigmoid_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """With respect to grad_output; the slope in x is constant wherever it is defined."""
    return _scaled(ctx, grad), None


def _in_place(x: Tensor) -> None:
    """The gradient needs what was there."""
    x.copy_(torch.ops.aclgrad.hardsigmoid(x.clone()))


_of_value, _of_slope = Gradient(_keep_x, _hardsigmoid), Gradient(_keep_x, _hardsigmoid_backward)

GRADIENTS = {
    "hardsigmoid": _of_value,
    "hardsigmoid_": Composed(_in_place),
    "hardsigmoid_backward": _of_slope,
}

smoothed = past_dispatcher(spec.hardsigmoid, _of_value)
_slope = past_dispatcher(spec.hardsigmoid_backward, _of_slope)
