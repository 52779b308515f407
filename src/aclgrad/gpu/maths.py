"""Elementary functions for Triton kernels, written out: Triton's interpreter has no device library.

tanh(x) = x + x³ P(x²) for |x| < 0.55 and 1 - 2 / (e^2x + 1) beyond; P is the fit that `aclgrad.cpu.vecmath` describes.
"""

from __future__ import annotations

import triton
import triton.language as tl

TANH_NEAR = tl.constexpr(0.55)
P0, P1, P2 = tl.constexpr(-0.33333316), tl.constexpr(0.13332586), tl.constexpr(-0.05385231)
P3, P4 = tl.constexpr(0.02107168), tl.constexpr(-0.0062742415)
FAR = tl.constexpr(1e30)  # 1 over more is too small to be refined, and too small to matter


@triton.jit
def tanh(x):
    """The hyperbolic tangent of float32 values, within a few units in the last place; NaN stays NaN."""
    size = tl.abs(x)
    square = x * x
    near = x + (x * square) * ((((P4 * square + P3) * square + P2) * square + P1) * square + P0)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    return tl.where(size < TANH_NEAR, near, tl.where(x < 0.0, -far, far))


@triton.jit
def sigmoid(x, ROUNDED: tl.constexpr = True):
    """The logistic function of float32 values; NaN stays NaN.

    Its division is rounded to nearest unless that is not wanted: a quick one may lean to one side, and the error of a
    forget gate is added up over all steps of a sequence. One step of Newton's does that without the branches
    of a division that is exact for all numbers.
    """
    below = 1.0 + tl.exp(-x)
    value = 1.0 / below
    if ROUNDED:
        left = tl.fma(-below, value, 1.0)
        value = tl.where(below < FAR, tl.fma(value, left, value), value)
    return value


@triton.jit
def when(condition, mask):
    """The mask if a scalar condition holds, else nothing. Triton 3.9's interpreter makes numbers of their `&`."""
    return tl.where(condition, mask, False)


@triton.jit
def undefined_if_infinite(x):
    """NaN where x is infinite, x elsewhere: 0·x is a zero for a number and NaN for Inf and NaN."""
    return x + 0.0 * x
