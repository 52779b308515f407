"""`nn.Softsign`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Softsign"]


class Softsign(nn.Softsign):
    """`torch.nn.Softsign` by this package's kernels.

    Shapes: any.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.Softsign()(torch.ones(1))
    tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """x / (1 + |x|)."""
        result: Tensor = torch.ops.aclgrad.softsign(input)
        return result
