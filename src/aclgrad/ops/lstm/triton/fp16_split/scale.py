"""Scales of matrices that are split into float16, and the kernels that find and apply them.

A GPU multiplies float32 many times slower than half precision. A large product of float32 is therefore made of three
of float16: with x·s = high + low, both rounded to float16, a·b is high·high + high·low + low·high to 22 bits of a and
b. The scale s, a power of two, brings the largest element of a matrix to 2^14: elements down to 2^-29 of it keep all
their bits, smaller ones are exact to 2^-39 of it. Whoever takes the result multiplies by both 1/s: see `unscaled`.

A scale is known by the amax it belongs to: the largest finite magnitude of a matrix or a row, as the bits of a float32
in an int32.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit

BLOCK_ROWS, BLOCK_COLUMNS = 8, 256
"""What a program of `find_amax` and `split` takes at a time."""

LEAST_AMAX = tl.constexpr(20 << 23)  # so that scales and their inverses are normal numbers


@jit
def magnitude(x):
    """The bits of |x|; 0 for what is not finite. Bits of numbers that are not negative rank as the numbers do."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return bits * (bits < 0x7F800000).to(tl.int32)


@jit
def scaled(value, amax):
    """The value times the scale of a matrix with this amax."""
    return value * ((268 - (amax >> 23)) << 23).to(tl.float32, bitcast=True)


@jit
def unscaled(value, amax):
    """The value over the scale of a matrix with this amax."""
    return value * (((amax >> 23) - 14) << 23).to(tl.float32, bitcast=True)


@jit
def find_amax(amax_ptr, x_ptr, row_amax_ptr, count, width, row_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The amax of x [count, width], at least `LEAST_AMAX`; see `read`."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    largest = tl.full([ROWS, COLUMNS], LEAST_AMAX, tl.int32)
    start = 0
    while start < width:
        columns = (start + tl.arange(0, COLUMNS))[None, :]
        x = read(x_ptr, row_amax_ptr, rows, columns, count, width, row_stride)
        largest = tl.maximum(largest, magnitude(x))
        start += COLUMNS
    tl.atomic_max(amax_ptr, tl.max(tl.max(largest, axis=1), axis=0), sem="relaxed")


@jit
def read(x_ptr, row_amax_ptr, rows, columns, count, width, row_stride):
    """Elements of x; over the scale that belongs to each row's amax, if there are any."""
    x = tl.load(x_ptr + rows * row_stride + columns, mask=(rows < count) & (columns < width), other=0.0)
    if row_amax_ptr is not None:
        x = unscaled(x, tl.load(row_amax_ptr + rows, mask=rows < count, other=LEAST_AMAX))
    return x


@jit
def split(
    high_ptr,
    high_again_ptr,
    low_ptr,
    x_ptr,
    row_amax_ptr,
    amax_ptr,
    count,
    width,
    row_stride,
    split_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The high and the low part of x, in rows `split_stride` apart; the high one a second time, if that is wanted."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (rows < count) & (columns < width)
    x = scaled(read(x_ptr, row_amax_ptr, rows, columns, count, width, row_stride), tl.load(amax_ptr))
    high = x.to(tl.float16)
    tl.store(high_ptr + rows * split_stride + columns, high, mask=inside)
    if high_again_ptr is not None:
        tl.store(high_again_ptr + rows * split_stride + columns, high, mask=inside)
    if low_ptr is not None:
        tl.store(low_ptr + rows * split_stride + columns, (x - high.to(tl.float32)).to(tl.float16), mask=inside)
