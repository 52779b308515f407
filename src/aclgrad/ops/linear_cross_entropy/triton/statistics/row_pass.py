"""Statistics of logits in a pass over what the vendor's library made: a program for each token."""

from __future__ import annotations

import triton.language as tl

from aclgrad.core.spec import BF16, F16, F32
from aclgrad.gpu.launch import jit

from ..maths import exponential, largest, logits_of, product_or_zero

ROUNDING = {F32: 0, F16: 1, BF16: 2}


@jit
def as_rounded(x, ROUNDING: tl.constexpr):
    """Float32 values as a half type has them."""
    if ROUNDING == 1:
        x = x.to(tl.float16).to(tl.float32)
    if ROUNDING == 2:
        x = x.to(tl.bfloat16).to(tl.float32)
    return x


@jit
def row_statistics(
    source_ptr, logits_ptr, own_ptr, biases_ptr, classes_ptr,
    maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr,
    first, columns, source_row, logits_row, logits_column, tiles_row, factor, cap,
    ROUNDING: tl.constexpr, EXACT: tl.constexpr, SHIFTS: tl.constexpr, PRECISE: tl.constexpr, SPAN: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A token's statistics over `SPAN` tiles of columns, the first of which is row `first` of the weight; their copy.

    Every line of the columns changes the largest logit, and with it what the sums so far are worth. `EXACT` leaves the
    own target out of the sum. What is found is said of the first tile: the others count for nothing. A copy that
    `SHIFTS` is less the largest logit, which all tiles then have; they have it where something is summed by class, too.
    The softcap is `PRECISE` to a float32.
    """
    token = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * (SPAN * WIDTH)
    columns = tl.minimum(columns - begin, SPAN * WIDTH)
    first += begin
    source_ptr += token * source_row + begin
    if logits_ptr is not None:
        logits_ptr += token * logits_row + begin.to(tl.int64) * logits_column
    at = token * tiles_row + begin // WIDTH
    target = tl.load(own_ptr + token) - first
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    mine = tl.zeros((), tl.float32)
    classed, seen, mixed = tl.zeros((), tl.float32), tl.zeros((), tl.float32), tl.zeros((), tl.float32)
    lead = tl.zeros((), tl.int32)  # the first column of the largest logit
    start = 0
    while start < columns:
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(source_ptr + column, inside, other=float("-inf")).to(tl.float32)
        x = as_rounded(x, ROUNDING)
        if factor is not None or biases_ptr is not None:
            x = logits_of(x, biases_ptr, first + column, inside, factor, cap, PRECISE)
            x = tl.where(inside, x, float("-inf"))
            mine += tl.sum(tl.where(column == target, x, 0.0), 0)
        if logits_ptr is not None and not SHIFTS:
            there = logits_ptr + column.to(tl.int64) * logits_column
            tl.store(there, x.to(logits_ptr.dtype.element_ty), inside)
        here = largest(x)
        higher = tl.where((here > top) | (here != here), here, top)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        if ahead_ptr is not None:
            lead = tl.where(here > top, tl.min(tl.where(x == here, column, columns), 0), lead)
        moved = tl.where(top == float("-inf"), 0.0, top - shift)
        if classed_ptr is not None:
            weight = tl.where(inside, 1.0, 0.0)
            if classes_ptr is not None:
                weight = tl.load(classes_ptr + first + column, inside, other=0.0)
            classed += seen * moved + tl.sum(tl.where(inside, (x - shift) * weight, 0.0), 0)
            seen += tl.sum(weight, 0)
        if EXACT:
            x = tl.where(column == target, float("-inf"), x)
        e = exponential(x - shift, True)
        if mixed_ptr is not None:
            mixed = exponential(top - shift, True) * (mixed + moved * total) + tl.sum(product_or_zero(e, x - shift), 0)
        total = total * exponential(top - shift, True) + tl.sum(e, 0)
        top = higher
        start += BLOCK
    tile = tl.arange(0, SPAN)
    exists = tile * WIDTH < columns
    others = top if SHIFTS or classed_ptr is not None else float("-inf")
    tl.store(maxima_ptr + at + tile, tl.where(tile == 0, top, others), exists)
    tl.store(sums_ptr + at + tile, tl.where(tile == 0, total, 0.0), exists)
    if classed_ptr is not None:
        tl.store(classed_ptr + at + tile, tl.where(tile == 0, classed, 0.0), exists)
    if mixed_ptr is not None:
        tl.store(mixed_ptr + at + tile, tl.where(tile == 0, mixed, 0.0), exists)
    if (target >= 0) & (target < columns):
        if factor is not None or biases_ptr is not None:
            tl.store(chosen_ptr + token, mine)
        else:
            x = tl.load(source_ptr + target).to(tl.float32)
            tl.store(chosen_ptr + token, as_rounded(x, ROUNDING))
        if ahead_ptr is not None:
            tl.store(ahead_ptr + token, tl.where(lead == target, first // WIDTH, -1))
    if SHIFTS:
        shift = tl.where(top == float("-inf"), 0.0, top)
        start = 0
        while start < columns:
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            x = tl.load(source_ptr + column, inside, other=0.0)
            if factor is not None or biases_ptr is not None:
                x = logits_of(x, biases_ptr, first + column, inside, factor, cap, PRECISE)
            there = logits_ptr + column.to(tl.int64) * logits_column
            tl.store(there, (x - shift).to(logits_ptr.dtype.element_ty), inside)
            start += BLOCK
