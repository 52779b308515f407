"""Elementary functions without branches, so that loops over them vectorise: `exp`, `sigmoid`, `tanh`.

float32 is computed here over the whole range, signed zeros, subnormal results, Inf and NaN included: `exp` within one
unit in the last place, `tanh` within 1.5, `sigmoid` within 2.5. float64 goes to the C library. The argument's type
decides.

e^x = 2^n e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2 and expm1(r) = r + r² Q(r); tanh(x) = x + x³ P(x²) for |x| < 0.55
and 1 - 2 / (e^2x + 1) beyond. P and Q are minimax fits of the relative error of tanh (1.0e-9) and expm1 (2.4e-10), by
Lawson's iteratively reweighted least squares at Chebyshev nodes in float64, then rounded to float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compiler import jit, overload
from .elements import FLOAT, I32

P0, P1, P2, P3, P4 = (np.float32(c) for c in (-0.33333316, 0.13332586, -0.05385231, 0.02107168, -0.0062742415))
Q0, Q1, Q2, Q3, Q4, Q5 = (
    np.float32(c) for c in (0.5, 0.16666666, 0.041666362, 0.00833339, 0.0013940628, 0.00019845877)
)
INV_LN2 = np.float32(1 / math.log(2))
LN2_HIGH = np.float32(355 / 512)  # few enough bits that n * LN2_HIGH is exact
LN2_LOW = np.float32(math.log(2) - 355 / 512)
ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves an integer in the low bits of the sum
EXP_LOW, EXP_HIGH = np.float32(-105), np.float32(89)  # e^x is 0 below and Inf above
TANH_NEAR = np.float32(0.55)
TANH_TWICE_HIGH = np.float32(20)  # tanh(x) is 1 for 2x above
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)


@intrinsic
def _two_to(typing: Any, rounded: Any) -> Any:
    """2^n as a float32, for n + ROUNDER."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        exponent = builder.shl(builder.bitcast(args[0], I32), I32(23))
        return builder.bitcast(builder.add(exponent, I32(127 << 23)), FLOAT)

    return types.float32(types.float32), emit


@intrinsic
def _scale(typing: Any, value: Any, rounded: Any) -> Any:
    """The value times 2^n for n + ROUNDER, in two steps so that the result may be subnormal or overflow."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        n = builder.sub(builder.bitcast(args[1], I32), I32(0x4B400000))
        half = builder.ashr(n, I32(1))
        result = args[0]
        for part in (half, builder.sub(n, half)):
            power = builder.shl(builder.add(part, I32(127)), I32(23))
            result = builder.fmul(result, builder.bitcast(power, FLOAT))
        return result

    return types.float32(types.float32, types.float32), emit


@intrinsic
def _with_sign(typing: Any, magnitude: Any, sign: Any) -> Any:
    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        copysign = ir.FunctionType(FLOAT, (FLOAT, FLOAT))
        return builder.call(builder.module.declare_intrinsic("llvm.copysign", (FLOAT,), copysign), args)

    return types.float32(types.float32, types.float32), emit


@intrinsic
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, of which a·b is the product that is fused, wherever this stands: LLVM itself goes by what is around it.

    It would not fuse a product that is the same in every turn of a loop, nor always the same one of two.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        number = args[0].type
        fused = ir.FunctionType(number, (number,) * 3)
        return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", (number,), fused), args)

    return a(a, a, a), emit


@jit
def _reduced(x: Any) -> Any:
    """(n + ROUNDER, expm1(x - n ln 2))."""
    rounded = x * INV_LN2 + ROUNDER
    n = rounded - ROUNDER
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    q = ((((Q5 * r + Q4) * r + Q3) * r + Q2) * r + Q1) * r + Q0
    return rounded, r + (r * r) * q


def _exp32(x: Any) -> Any:
    x = EXP_HIGH if x > EXP_HIGH else x  # noqa: FURB136  # unlike min(), this lets a NaN pass
    vanishes = x < EXP_LOW  # rounding such a result to 0 would take a processor a hundred cycles
    rounded, small = _reduced(ZERO if vanishes else x)
    result = _scale(ONE + small, rounded)
    return ZERO if vanishes else result


def _tanh32(x: Any) -> Any:
    size = abs(x)
    square = x * x
    p = (((P4 * square + P3) * square + P2) * square + P1) * square + P0
    near = size + (size * square) * p
    twice = TWO * size
    rounded, small = _reduced(TANH_TWICE_HIGH if twice > TANH_TWICE_HIGH else twice)  # noqa: FURB136
    power = _two_to(rounded)
    far = ONE - TWO / (power * small + (power + ONE))
    return _with_sign(near if size < TANH_NEAR else far, x)


def exp(x: float) -> float:
    """e^x."""
    return math.exp(x)


def tanh(x: float) -> float:
    """The hyperbolic tangent."""
    return math.tanh(x)


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), accurate also where it is tiny."""
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small)


def _sigmoid32(x: Any) -> Any:
    small = exp(-abs(x))
    return (ONE if x >= ZERO else small) / (ONE + small)


@overload(exp)
def _exp(x: Any) -> Any:
    return _exp32 if x == types.float32 else exp


@overload(tanh)
def _tanh(x: Any) -> Any:
    return _tanh32 if x == types.float32 else tanh


@overload(sigmoid)
def _sigmoid(x: Any) -> Any:
    return _sigmoid32 if x == types.float32 else sigmoid
