"""Elementary functions of the softmax and the loss, as Triton functions."""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import tanh

LOG2E = tl.constexpr(1.4426950408889634)
LOG2E_LOW = tl.constexpr(1.925963033500e-8)  # what float32 loses of log2(e)
LN2 = tl.constexpr(0.6931471805599453)


@jit
def exponential(x, EXACT: tl.constexpr):
    """e^x. The hardware's 2^y is close, y = x·log2(e) is not for large x; `EXACT` makes up for the rounding of y."""
    y = x * LOG2E
    e = tl.exp2(y)
    if EXACT:
        lost = tl.fma(x, LOG2E, -y) + x * LOG2E_LOW
        e = tl.where((e > 0) & (e < float("inf")), e + e * (lost * LN2), e)
    return e


@jit
def log1p(x):
    """log(1 + x), as precise for a small x as for others: what 1 + x loses of x is made up for."""
    wide = 1.0 + x
    return tl.where((wide == 1.0) | (wide == float("inf")), x, tl.log(wide) * (x / (wide - 1.0)))


@jit
def largest(values):
    """The largest of some values, NaN if one of them is."""
    undefined = tl.max((values != values).to(tl.int32), 0)
    return tl.where(undefined > 0, float("nan"), tl.max(values, 0))


@jit
def logits_of(products, biases_ptr, column, inside, factor, cap, EXACT: tl.constexpr):
    """Logits of the products in some columns: times `factor`, plus biases that are already so, within ±`cap`."""
    y = products
    if factor is not None:
        y = y * factor
    if biases_ptr is not None:
        y = y + tl.load(biases_ptr + column, inside, other=0.0)
    if cap is not None:
        y = cap * tanh(y) if EXACT else cap - 2.0 * cap / (1.0 + tl.exp2(y))
    return y


@jit
def cap_slope(logits, cap):
    """∂logit/∂(logit without softcap) = 1 − (logit / cap)²."""
    share = logits / cap
    return (1.0 - share) * (1.0 + share)


@jit
def log_sum(others, total, here):
    """log of `total` = e⁰ or less + `others`, as precise where the latter are few: the own target then adds 1."""
    return tl.where(here & (others < 1.0), log1p(others), tl.log(total))


@jit
def product_or_zero(e, x):
    """e · x, 0 where e is: an x of -Inf has an exponential e of 0."""
    return tl.where(e > 0.0, e * x, e * 0.0)
