"""Where the rows of a time lie: for kernels of all ways, in Gluon, too.

Padded tensors have N rows at each time, as far from the next time's as their strides say. Of packed ones `starts` has
the first row of each time, and strides along times are those of rows. `batch_sizes` then has how many rows a time has,
none before the first time and behind the last.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit


@jit
def place_of(t, starts_ptr):
    """A time's place along the rows of tensors: of packed ones its first row, else the time itself."""
    place = t.to(tl.int64)
    if starts_ptr is not None:
        place = tl.load(starts_ptr + t)
    return place


@jit
def with_data(inside, t, n, starts_ptr, batch_sizes_ptr):
    """Which rows n of those `inside` lie in packed tensors at time t; all of them in padded ones."""
    if starts_ptr is not None:
        inside = inside & (tl.load(batch_sizes_ptr + t) > n)
    return inside


@jit
def starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t, n, N):
    """Whether rows start step t from zeros, of flags with a bit for each direction."""
    at = t.to(tl.int64) * N
    if starts_ptr is not None:
        at = tl.load(starts_ptr + t)
    inside = with_data(n < N, t, n, starts_ptr, batch_sizes_ptr)
    flags = tl.load(anew_ptr + at + n, mask=inside, other=0)
    return ((flags >> reverse) & 1) != 0
