"""The family's functions."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from . import spec


def softsign(x: Tensor, *, out: Tensor | None = None, backend: str | None = None) -> Tensor:
    """x / (1 + |x|).

    Shapes: `x` and the result are equal. Dtypes: float16, bfloat16, float32 or float64.

    >>> import torch, aclgrad
    >>> aclgrad.softsign(torch.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5000,  0.0000,  0.7500])
    """
    return cast(Tensor, spec.softsign(x, out=out, backend=backend))


def softsign_backward(
    grad_output: Tensor, x: Tensor, *, out: Tensor | None = None, backend: str | None = None
) -> Tensor:
    """Gradient of softsign: grad_output / (1 + |x|)².

    Shapes: `grad_output`, `x` and the result are equal. Dtypes: float16, bfloat16, float32 and float64 in any mix.

    >>> import torch, aclgrad
    >>> aclgrad.softsign_backward(torch.ones(2), torch.tensor([0.0, -1.0]))
    tensor([1.0000, 0.2500])
    """
    return cast(Tensor, spec.softsign_backward(grad_output, x, out=out, backend=backend))
