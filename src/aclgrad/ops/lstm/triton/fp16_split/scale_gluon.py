"""The functions of `scale` for kernels in Gluon."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from . import scale

magnitude, scaled, unscaled = (gluon.jit(function.fn) for function in (scale.magnitude, scale.scaled, scale.unscaled))
LEAST_AMAX = gl.constexpr(scale.LEAST_AMAX.value)
