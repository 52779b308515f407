"""The textbook: hardsigmoid and its gradient, both of which autograd can differentiate."""

from __future__ import annotations

import torch
from torch import Tensor


def hardsigmoid(x: Tensor) -> Tensor:
    """clamp((x + 3) / 6, 0, 1); of integers cut off, so that it is 1 from 3 on and 0 below."""
    return torch.clamp((x + 3.0) / 6, 0, 1).to(x.dtype)  # a float 3, so that the sum of integers cannot overflow


def hardsigmoid_(x: Tensor) -> Tensor:
    """The new value of x."""
    return hardsigmoid(x)


def hardsigmoid_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """grad_output / 6 on the open interval (-3, 3); 0 elsewhere, at both ends and where x is NaN.

    It is linear in grad_output, so its own gradient is hardsigmoid_backward of that one's gradient; x gets none.
    """
    return torch.where((x > -3) & (x < 3), grad_output / 6, 0.0)
