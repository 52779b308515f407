"""softsign can be differentiated once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Gradient


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    slope: Tensor = torch.ops.aclgrad.softsign_backward(grad, x)
    return slope


GRADIENTS = {"softsign": Gradient(_keep, _backward)}
