"""One row of p on CPUs: probabilities, less one-hot, times the token's gradient; or slopes, where there are options."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.vecmath import exp

from .gradient_plan import GradientPlan
from .options import slopes
from .targets import target_at

ONE = np.float32(1)


@jit
def _probabilities(p: Any, logits: Any, columns: int, own: int, shift: Any, sum_exp: Any, scale: Any) -> None:
    """One row of p, less one-hot at `own` if that is among the columns."""
    for j in range(columns):
        p[j] = exp(logits[j] - shift) / sum_exp * scale
    if 0 <= own < columns:
        p[own] = (exp(logits[own] - shift) / sum_exp - ONE) * scale


@jit
def scaled_copy(out: Any, stride: int, source: Any, source_stride: int, count: int, scale: Any) -> None:
    """Elements times a number, rounded."""
    if stride == 1 and source_stride == 1:
        for j in range(count):
            out[j] = source[j] * scale
    else:
        for j in range(count):
            out[j * stride] = source[j * source_stride] * scale


@jit
def given_row(p: Any, softmax: Any, step: int, columns: int, own: int, scale: Any) -> None:
    """One row of p, less one-hot, from the softmax."""
    scaled_copy(p, 1, softmax, step, columns, scale)
    if 0 <= own < columns:
        p[own] = (softmax[own * step] - ONE) * scale


@jit
def own_target(token: int, plan: GradientPlan, mask: Any, target: int) -> int:
    """The row of `weight` that is the token's target, -1 where a mask says it is elsewhere."""
    if plan.has_mask:
        elsewhere = mask[(token >> plan.mask_bits) * plan.mask] >> (token & ((1 << plan.mask_bits) - 1))
        if elsewhere & 1:
            return -1
    return target_at(target, plan.wide_target, token * plan.target)  # type: ignore[no-any-return]


@jit
def slope_row(
    p: Any, logits: Any, columns: int, own: int, shift: Any, top: Any, sum_exp: Any, scale: Any, token: int, at: int,
    plan: GradientPlan, beta: Any, delta: Any, classes: Any,
) -> None:  # fmt: skip
    """One row of p of logits less `top - shift`, or with options of slopes; column 0 is row `at` of the weight."""
    if plan.on:
        numbers = (scale, beta[token], delta[token])
        slopes(p, logits, columns, shift, top, sum_exp, *numbers, classes + at, plan.softcap, plan.logit_scale)
    else:
        _probabilities(p, logits, columns, own, shift, sum_exp, scale)
