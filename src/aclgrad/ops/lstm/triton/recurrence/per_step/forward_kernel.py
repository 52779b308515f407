"""One step of the forward pass in a launch: for devices, shapes and tools that cannot keep a grid resident.

A step finds h as the previous one left it in one of two buffers in turn, multiplies it with w_hh (or finds that product
in `products`, where a library has made it) and adds what the layer's input gave. `carry` holds c, h and whether a row
has begun; rows that start this step `anew` leave c and h behind. See `persistent/forward_kernel` for how float32 is
multiplied and for `h0_product`.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import when

from ...fp16_split.scale import unscaled
from ..forward_step import H_SCALE, next_step, store, store_step
from ..rows import place_of, starts_anew, with_data
from .step_kernel import STEP_SUM_LENGTH, jit_step

HALF_SUM_LENGTH = tl.constexpr(512)
"""Terms of half precision that a matrix unit may sum."""


@jit
def load_four_gates(ptr, mask, GATE_STRIDE: tl.constexpr):
    """One value for each gate, GATE_STRIDE apart."""
    return (
        tl.load(ptr, mask=mask, other=0.0).to(tl.float32),
        tl.load(ptr + GATE_STRIDE, mask=mask, other=0.0).to(tl.float32),
        tl.load(ptr + 2 * GATE_STRIDE, mask=mask, other=0.0).to(tl.float32),
        tl.load(ptr + 3 * GATE_STRIDE, mask=mask, other=0.0).to(tl.float32),
    )


@jit
def multiply_h(
    h_ptr, w_hh_ptr, w_hh_low_ptr, n, N, u0, H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    BLOCK_K: tl.constexpr, H_STRIDE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The product of h [ROWS, H] and w_hhᵀ for all four gates of UNITS units: [ROWS, UNITS] each."""
    column = tl.arange(0, 4 * UNITS)[:, None]
    unit = u0 + column // 4
    w_row = ((column % 4) * H + unit).to(tl.int64) * H
    total = tl.zeros([ROWS, 4 * UNITS], tl.float32)
    cross = tl.zeros([ROWS, 4 * UNITS], tl.float32)
    SUM_LENGTH: tl.constexpr = HALF_SUM_LENGTH if w_hh_low_ptr is None else STEP_SUM_LENGTH
    for k_start in range(0, H, SUM_LENGTH):
        product = tl.zeros([ROWS, 4 * UNITS], tl.float32)
        for k0 in range(k_start, min(H, k_start + SUM_LENGTH), BLOCK_K):
            k = k0 + tl.arange(0, BLOCK_K)[None, :]
            h_inside, w_inside = (n < N) & (k < H), (unit < H) & (k < H)
            h = tl.load(h_ptr + n * H_STRIDE + k, mask=h_inside, other=0.0)
            w = tl.load(w_hh_ptr + w_row + k, mask=w_inside, other=0.0)
            if WIDEN:
                h, w = h.to(tl.float32), w.to(tl.float32)
            product = tl.dot(h, w.T, product)
            if w_hh_low_ptr is not None:
                h_low = tl.load(h_ptr + (n + N) * H_STRIDE + k, mask=h_inside, other=0.0)
                w_low = tl.load(w_hh_low_ptr + w_row + k, mask=w_inside, other=0.0)
                if WIDEN:
                    h_low, w_low = h_low.to(tl.float32), w_low.to(tl.float32)
                cross = tl.dot(h_low, w.T, cross)
                cross = tl.dot(h, w_low.T, cross)
        total += product
    even, odd = tl.split(tl.reshape(total + cross, [ROWS, UNITS, 2, 2]))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    return i, f, g, o


@jit_step
def step_forward(
    h_buffer_ptr, w_hh_ptr, w_hh_low_ptr, w_hh_amax_ptr, gates_ptr, x_amax_ptr, w_ih_amax_ptr, bias_ptr,
    h0_product_ptr, h_init_ptr, c_init_ptr, output_ptr, hy_ptr, cy_ptr, i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr,
    tanhc0_ptr, i1_ptr, g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr, batch_sizes_ptr, starts_ptr, carry_ptr,
    products_ptr, anew_ptr, step, T, N, gates_strides, h_init_strides, c_init_strides, output_strides, hy_strides,
    cy_strides, saved_strides, H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, BLOCK_K: tl.constexpr,
    H_STRIDE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, UNITS] of this step of direction `program_id(2)`."""
    reverse = tl.program_id(2)
    n = (tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    u0 = tl.program_id(0) * UNITS
    u = u0 + tl.arange(0, UNITS)[None, :]
    inside = (n < N) & (u < H)
    t = tl.where(reverse == 1, T - 1 - step, step).to(tl.int64)
    if i0_ptr is not None and reverse == 1:
        i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr = (
            i1_ptr, g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr,
        )  # fmt: skip
    split = 1
    if w_hh_low_ptr is not None:
        split = 2
        w_hh_low_ptr += reverse.to(tl.int64) * (4 * H * H)
    w_hh_ptr += reverse.to(tl.int64) * (4 * H * H)
    h_buffer_ptr += reverse.to(tl.int64) * N * H_STRIDE * split
    buffer_size = tl.num_programs(2).to(tl.int64) * N * H_STRIDE * split
    carried_ptr = carry_ptr + reverse.to(tl.int64) * N * H + n * H + u
    carried_size = tl.num_programs(2).to(tl.int64) * N * H

    a_i, a_f, a_g, a_o = load_four_gates(
        gates_ptr + place_of(t, starts_ptr) * gates_strides[0] + n * gates_strides[1] + reverse * (4 * H) + u,
        with_data(inside, t, n, starts_ptr, batch_sizes_ptr), H,
    )  # fmt: skip
    if x_amax_ptr is not None:
        scale = unscaled(unscaled(1.0, tl.load(x_amax_ptr)), tl.load(w_ih_amax_ptr))
        a_i, a_f, a_g, a_o = a_i * scale, a_f * scale, a_g * scale, a_o * scale
    if bias_ptr is not None:
        b_i, b_f, b_g, b_o = load_four_gates(bias_ptr + reverse * (4 * H) + u, u < H, H)
        a_i, a_f, a_g, a_o = a_i + b_i, a_f + b_f, a_g + b_g, a_o + b_o

    begun = (n < 0) & (u < 0)
    anew = n < 0
    if anew_ptr is not None:
        anew = starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t, n, N)
    if step == 0:
        c_prev = tl.zeros([ROWS, UNITS], tl.float32)
        h_prev = tl.zeros([ROWS, UNITS], tl.float32)
        if c_init_ptr is not None:
            at = reverse * c_init_strides[0] + n * c_init_strides[1] + u * c_init_strides[2]
            c_prev += tl.load(c_init_ptr + at, mask=inside, other=0.0).to(tl.float32)
        if h_init_ptr is not None:
            at = reverse * h_init_strides[0] + n * h_init_strides[1] + u * h_init_strides[2]
            h_prev += tl.load(h_init_ptr + at, mask=inside, other=0.0).to(tl.float32)
    else:
        c_prev = tl.load(carried_ptr, mask=inside, other=0.0)
        h_prev = tl.zeros([ROWS, UNITS], tl.float32)
        if batch_sizes_ptr is not None:
            h_prev = tl.load(carried_ptr + carried_size, mask=inside, other=0.0)
            begun = tl.load(carried_ptr + 2 * carried_size, mask=inside, other=0.0) != 0.0
        if products_ptr is not None:
            products_at = products_ptr + reverse.to(tl.int64) * N * (4 * H) + n * (4 * H) + u
            p_i, p_f, p_g, p_o = load_four_gates(products_at, inside, H)
        else:
            p_i, p_f, p_g, p_o = multiply_h(
                h_buffer_ptr + ((step + 1) % 2) * buffer_size, w_hh_ptr, w_hh_low_ptr, n, N, u0, H, ROWS, UNITS,
                BLOCK_K, H_STRIDE, WIDEN,
            )  # fmt: skip
        if w_hh_amax_ptr is not None:
            scale = unscaled(1.0 / H_SCALE, tl.load(w_hh_amax_ptr))
            p_i, p_f, p_g, p_o = p_i * scale, p_f * scale, p_g * scale, p_o * scale
        if anew_ptr is not None:
            p_i, p_f = tl.where(anew, 0.0, p_i), tl.where(anew, 0.0, p_f)
            p_g, p_o = tl.where(anew, 0.0, p_g), tl.where(anew, 0.0, p_o)
        a_i, a_f, a_g, a_o = a_i + p_i, a_f + p_f, a_g + p_g, a_o + p_o
    if anew_ptr is not None:
        c_prev = tl.where(anew, 0.0, c_prev)
    if h0_product_ptr is not None:
        first = when(step == 0, inside)
        if batch_sizes_ptr is not None:
            first = inside & ~begun
        first = first & ~anew
        p_i, p_f, p_g, p_o = load_four_gates(
            h0_product_ptr + reverse.to(tl.int64) * N * (4 * H) + n * (4 * H) + u, first, H
        )
        a_i, a_f, a_g, a_o = a_i + p_i, a_f + p_f, a_g + p_g, a_o + p_o

    valid = inside
    if batch_sizes_ptr is not None:
        valid = inside & (tl.load(batch_sizes_ptr + t) > n)
    i, f, g, o, c, tanhc, h, y, h_next, begun = next_step(
        a_i, a_f, a_g, a_o, c_prev, h_prev, begun, valid, batch_sizes_ptr, output_ptr.dtype.element_ty == tl.float32
    )

    dtype = output_ptr.dtype.element_ty
    tl.store(carried_ptr, c.to(dtype).to(tl.float32), mask=inside)
    if batch_sizes_ptr is not None:
        tl.store(carried_ptr + carried_size, h.to(dtype).to(tl.float32), mask=inside)
        tl.store(carried_ptr + 2 * carried_size, begun.to(tl.float32), mask=inside)
    if w_hh_amax_ptr is not None:
        h_next *= H_SCALE
    h_at = h_buffer_ptr + (step % 2) * buffer_size + n * H_STRIDE + u
    h_high = h_next.to(h_buffer_ptr.dtype.element_ty)
    tl.store(h_at, h_high, mask=inside)
    if w_hh_low_ptr is not None:
        tl.store(h_at + N * H_STRIDE, (h_next - h_high.to(tl.float32)).to(h_buffer_ptr.dtype.element_ty), mask=inside)
    store_step(
        i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, output_ptr, i, g, f, o, h, c, tanhc, y, t, reverse,
        n, u, inside, saved_strides, output_strides, batch_sizes_ptr, starts_ptr,
    )  # fmt: skip
    last = when(step == T - 1, inside)
    store(hy_ptr, reverse * hy_strides[0] + n * hy_strides[1] + u * hy_strides[2], h, last)
    store(cy_ptr, reverse * cy_strides[0] + n * cy_strides[1] + u * cy_strides[2], c, last)
