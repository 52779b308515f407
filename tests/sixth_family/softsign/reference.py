"""The textbook: softsign and its gradient."""

from __future__ import annotations

from torch import Tensor


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return x / (1 + x.abs())


def softsign_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """grad_output / (1 + |x|)²."""
    return grad_output / (1 + x.abs()).square()
