"""`nn.Hardsigmoid`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import hardsigmoid

from ...core.binding import require_strided
from .._shared.modules import recorded, require_tensor
from .._shared.small import REFUSALS, is_served, restate
from .autograd import smoothed

__all__ = ["Hardsigmoid"]

SMALL = {
    False: {torch.float32: 1 << 23, torch.float16: 3 << 16, torch.bfloat16: 3 << 16},
    True: {torch.float32: 1 << 20, torch.float16: 1 << 17, torch.bfloat16: 1 << 17},
}
"""By whether it is a GPU: elements up to which torch's own kernel is the faster one on a CPU, where it is as exact; on
a GPU it costs the host less, and up to so many elements the GPU no more.

In the gradient of float64 it takes a float32 for 1/6. Half types it rounds once, as ours does.
"""


class Hardsigmoid(nn.Hardsigmoid):
    """`torch.nn.Hardsigmoid` by this package's kernels; can be differentiated any number of times.

    Shapes: any; the result has the shape and dtype of the input.

    >>> import torch, aclgrad.nn
    >>> aclgrad.nn.Hardsigmoid()(torch.tensor([-4.0, 0.0, 1.5]))
    tensor([0.0000, 0.5000, 0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        """min(max((x + 3) / 6, 0), 1), over the input where `inplace` asks for it."""
        if is_served(input, by_gpu=True) and input.numel() <= SMALL[input.is_cuda].get(input.dtype, 0):
            follows = input.requires_grad and torch.is_grad_enabled()
            try:
                if not (follows and self.inplace):  # x, which the second derivative needs, would be gone
                    output = hardsigmoid(input, self.inplace)
                    if follows:
                        restate(output.grad_fn, input, _again)  # torch's own cannot be differentiated
                    return output
            except REFUSALS:  # said better below
                pass
        if isinstance(input, Proxy):
            return recorded(self, input)
        if isinstance(input, Tensor) and input.is_quantized:
            return hardsigmoid(input, self.inplace)
        require_tensor("input", input)
        require_strided("input", input)
        if not self.inplace:
            return smoothed(input)  # type: ignore[no-any-return]
        torch.ops.aclgrad.hardsigmoid_(input)
        return input


def _again(x: Tensor, _: Sequence[Any], upstream: Sequence[Any]) -> Any:
    """The gradient of x as an operator that can be differentiated."""
    return (torch.ops.aclgrad.hardsigmoid_backward(upstream[0], x),)
