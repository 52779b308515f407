"""`nn.Hardsigmoid`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...core.binding import require_strided
from .._shared.modules import require_tensor

__all__ = ["Hardsigmoid"]


class Hardsigmoid(nn.Hardsigmoid):
    """`torch.nn.Hardsigmoid` by this package's kernels; can be differentiated any number of times.

    Shapes: any; the result has the shape and dtype of the input.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.Hardsigmoid()(torch.tensor([-4.0, 0.0, 1.5]))
    tensor([0.0000, 0.5000, 0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        """min(max((x + 3) / 6, 0), 1), over the input where `inplace` asks for it."""
        require_tensor("input", input)
        require_strided("input", input)
        if not self.inplace:
            return torch.ops.aclgrad.hardsigmoid(input)  # type: ignore[no-any-return]
        torch.ops.aclgrad.hardsigmoid_(input)
        return input
