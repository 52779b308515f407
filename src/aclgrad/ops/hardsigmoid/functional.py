"""The family's functions."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from . import spec


def hardsigmoid(x: Tensor, *, out: Tensor | None = None, backend: str | None = None) -> Tensor:
    """min(max((x + 3) / 6, 0), 1), a sigmoid made of three straight lines.

    Shapes: `x` and the result are equal, of any rank and any strides. Dtypes: float16, bfloat16, float32,
    float64 or int32, and the result has the same; half types are computed in float32 and rounded once, integers are
    cut off. NaN stays NaN.

    >>> import torch, aclgrad
    >>> aclgrad.hardsigmoid(torch.tensor([-4.0, 0.0, 1.5, 3.0]))
    tensor([0.0000, 0.5000, 0.7500, 1.0000])
    """
    return cast(Tensor, spec.hardsigmoid(x, out=out, backend=backend))


def hardsigmoid_(x: Tensor, *, backend: str | None = None) -> Tensor:
    """`hardsigmoid` written over its argument, which is also returned.

    Shapes and dtypes are those of `hardsigmoid`; no two elements of `x` may share memory.

    >>> import torch, aclgrad
    >>> x = torch.tensor([-4.0, 0.0, 1.5, 3.0])
    >>> aclgrad.hardsigmoid_(x) is x
    True
    >>> x
    tensor([0.0000, 0.5000, 0.7500, 1.0000])
    """
    spec.hardsigmoid_(x, backend=backend)
    return x


def hardsigmoid_backward(
    grad_output: Tensor, x: Tensor, *, out: Tensor | None = None, backend: str | None = None
) -> Tensor:
    """Gradient of hardsigmoid: `grad_output / 6` where -3 < x < 3, else 0.

    Shapes: `grad_output`, `x` and the result are equal, of any rank and any strides. Dtypes: float16, bfloat16,
    float32 and float64 in any mix; the result has the promoted dtype unless `out` decides. Half types are computed in
    float32 and rounded once. The ends ±3, infinities and NaN of `x` give 0.

    >>> import torch, aclgrad
    >>> aclgrad.hardsigmoid_backward(torch.tensor([6.0, 6.0, 6.0]), torch.tensor([-3.0, 0.5, 4.0]))
    tensor([0., 1., 0.])
    """
    return cast(Tensor, spec.hardsigmoid_backward(grad_output, x, out=out, backend=backend))
