"""The family's functions."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from . import spec


def hardsigmoid_backward(
    grad_output: Tensor, x: Tensor, *, out: Tensor | None = None, backend: str | None = None
) -> Tensor:
    """Gradient of hardsigmoid: `grad_output / 6` where -3 < x < 3, else 0.

    Shapes: `grad_output`, `x` and the result are equal, of any rank up to 8 and any strides. Dtypes: float16, bfloat16,
    float32 and float64 in any mix; the result has the promoted dtype unless `out` decides. Half types are computed in
    float32 and rounded once. The ends ±3, infinities and NaN of `x` give 0.

    >>> import torch, aclgrad
    >>> aclgrad.hardsigmoid_backward(torch.tensor([6.0, 6.0, 6.0]), torch.tensor([-3.0, 0.5, 4.0]))
    tensor([0., 1., 0.])
    """
    return cast(Tensor, spec.hardsigmoid_backward(grad_output, x, out=out, backend=backend))
