"""What a step of the forward pass computes and stores, whichever kernel runs it; in Gluon, too."""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import tanh
from aclgrad.ops._shared.lstm_gates_triton import next_state

from .rows import place_of, with_data

H_SCALE = tl.constexpr(16384.0)
"""The scale of a split h: |h| ≤ 1, and float16 reaches to 65504."""


@jit
def store(ptr, offset, value, inside):
    """Store, where it is wanted."""
    if ptr is not None:
        tl.store(ptr + offset, value.to(ptr.dtype.element_ty), mask=inside)


@jit
def next_step(a_i, a_f, a_g, a_o, c, h, begun, valid, batch_sizes_ptr, ROUNDED: tl.constexpr):
    """A step from the state (c, h): i, f, g, o, c, tanhc, h, the output, the h to multiply next, and who has begun.

    Where lengths differ, a row without data, which is not `valid`, keeps its state and its output is zero; before its
    first step it has no h to multiply, since the product with h0 is made beforehand.
    """
    i, f, g, o, c_new = next_state(a_i, a_f, a_g, a_o, c, ROUNDED)
    if batch_sizes_ptr is not None:
        c_new = tl.where(valid, c_new, c)
    tanhc = tanh(c_new)
    h_new = o * tanhc
    y = h_new
    h_next = h_new
    if batch_sizes_ptr is not None:
        y = tl.where(valid, h_new, 0.0)
        h_new = tl.where(valid, h_new, h)
        begun = begun | valid
        h_next = tl.where(begun, h_new, 0.0)
    return i, f, g, o, c_new, tanhc, h_new, y, h_next, begun


@jit
def store_step(
    i_ptr, g_ptr, f_ptr, o_ptr, h_ptr, c_ptr, tanhc_ptr, output_ptr, i, g, f, o, h, c, tanhc, y, t, reverse, n, u,
    inside, saved_strides, output_strides, batch_sizes_ptr, starts_ptr,
):  # fmt: skip
    """What step t leaves: the output, and the activations if they are saved."""
    place = place_of(t, starts_ptr)
    inside = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
    at = place * saved_strides[0] + n * saved_strides[1] + u * saved_strides[2]
    store(i_ptr, at, i, inside)
    store(g_ptr, at, g, inside)
    store(f_ptr, at, f, inside)
    store(o_ptr, at, o, inside)
    store(h_ptr, at, h, inside)
    store(c_ptr, at, c, inside)
    store(tanhc_ptr, at, tanhc, inside)
    at = place * output_strides[0] + n * output_strides[1] + reverse * output_strides[2] + u * output_strides[3]
    store(output_ptr, at, y, inside)
