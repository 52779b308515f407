"""Statistics of logits in a pass over what the vendor's library made: a program for each token."""

from __future__ import annotations

import triton.language as tl

from aclgrad.core.spec import BF16, F16, F32
from aclgrad.gpu.launch import jit

from ..maths import exponential, largest

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
    source_ptr, logits_ptr, own_ptr, maxima_ptr, sums_ptr, chosen_ptr,
    first, columns, source_row, logits_row, logits_column, tiles_row,
    ROUNDING: tl.constexpr, EXACT: tl.constexpr, SHIFTS: tl.constexpr, SPAN: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics over some columns, of which the first is row `first` of the weight; their copy, if wanted.

    Every line of the columns changes the largest logit, and with it what the sum so far is worth. `EXACT` leaves the
    own target out of the sum. A copy that `SHIFTS` is less the largest logit, which all tiles of the columns then have.
    """
    token = tl.program_id(0).to(tl.int64)
    target = tl.load(own_ptr + token) - first
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    start = 0
    while start < columns:
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(source_ptr + token * source_row + column, inside, other=float("-inf")).to(tl.float32)
        x = as_rounded(x, ROUNDING)
        if logits_ptr is not None and not SHIFTS:
            at = token * logits_row + column.to(tl.int64) * logits_column
            tl.store(logits_ptr + at, x.to(logits_ptr.dtype.element_ty), inside)
        here = largest(x)
        higher = tl.where((here > top) | (here != here), here, top)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        if EXACT:
            x = tl.where(column == target, float("-inf"), x)
        total = total * exponential(top - shift, True) + tl.sum(exponential(x - shift, True), 0)
        top = higher
        start += BLOCK
    tl.store(maxima_ptr + token * tiles_row, top)
    tl.store(sums_ptr + token * tiles_row, total)
    if (target >= 0) & (target < columns):
        x = tl.load(source_ptr + token * source_row + target).to(tl.float32)
        tl.store(chosen_ptr + token, as_rounded(x, ROUNDING))
    if SHIFTS:
        tile = tl.arange(0, SPAN)
        tl.store(maxima_ptr + token * tiles_row + tile, top + tl.zeros((SPAN,), tl.float32), tile * WIDTH < columns)
        shift = tl.where(top == float("-inf"), 0.0, top)
        start = 0
        while start < columns:
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            x = tl.load(source_ptr + token * source_row + column, inside, other=0.0) - shift
            at = token * logits_row + column.to(tl.int64) * logits_column
            tl.store(logits_ptr + at, x.to(logits_ptr.dtype.element_ty), inside)
            start += BLOCK
