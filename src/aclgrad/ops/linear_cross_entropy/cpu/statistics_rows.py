"""Sums and maxima of a row of logits, `LANES` columns side by side, in one order on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import cast, rounded_as
from aclgrad.cpu.reductions import LANES, larger, largest, total
from aclgrad.cpu.vecmath import exp

NOTHING, ZERO = np.float32(-np.inf), np.float32(0)


@jit
def largest_rounded(lanes: Any, values: Any, count: int, like: Any) -> Any:
    """The largest of whole lanes of values, which are rounded to the dtype of `like` where they are."""
    for lane in range(LANES):
        values[lane] = rounded_as(values[lane], like)
        lanes[lane] = values[lane]
    for column in range(LANES, count, LANES):
        for lane in range(LANES):
            values[column + lane] = rounded_as(values[column + lane], like)
            lanes[lane] = larger(values[column + lane], lanes[lane])
    return largest(lanes, LANES)


def _sum_of(term: Any) -> Any:
    """`sum(lanes, values, count, shift)`: Σ term(value − shift) of whole lanes."""

    @jit
    def lane_sum(lanes: Any, values: Any, count: int, shift: Any) -> Any:
        for lane in range(LANES):
            lanes[lane] = term(values[lane] - shift)
        for column in range(LANES, count, LANES):
            for lane in range(LANES):
                lanes[lane] += term(values[column + lane] - shift)
        return total(lanes)

    return lane_sum


@jit
def _exponential(left: Any) -> Any:
    return exp(left)


@jit
def product(left: Any) -> Any:
    """exp(left) · left, which is 0 for -Inf."""
    e = exp(left)
    return e * left if e > ZERO else e


sum_of_exponentials, sum_of_products = _sum_of(_exponential), _sum_of(product)


@jit
def weighed_sum(lanes: Any, values: Any, weights: Any, count: int, shift: Any) -> Any:
    """Σ weight · (value − shift) of `count` values."""
    for lane in range(LANES):
        lanes[lane] = cast(ZERO, shift)
    whole = count // LANES * LANES
    for column in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += weights[column + lane] * (values[column + lane] - shift)
    for column in range(whole, count):
        lanes[column - whole] += weights[column] * (values[column] - shift)
    return total(lanes)


@jit
def wins(values: Any, own: int, count: int) -> bool:
    """Whether the own value is the first of the largest."""
    mine = values[own]
    beaten = 0
    for column in range(own):
        beaten |= not values[column] < mine
    for column in range(own + 1, count):
        beaten |= not values[column] <= mine
    return beaten == 0
