"""One step of the gradient in a launch: for devices, shapes and tools that cannot keep a grid resident.

A step finds what the previous one left, multiplies its gate gradients with w_hh (or finds that product in `products`,
where a library has made it, in one piece or in PARTIALS to be added), and leaves its own; where that is in another
place for every call, once more as `factor` for the library. After the last step, launch T
makes the initial states' gradients.

For split float32 products (see `split_products`) a program has whole rows: it finds the amax of their gate gradients
and leaves all of them split, scaled by it.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.ops._shared.lstm_gates_triton import gate_gradients

from ...fp16_split.scale import LEAST_AMAX, magnitude, scaled, unscaled
from ..rows import place_of, starts_anew, with_data
from .step_kernel import STEP_SUM_LENGTH, jit_step


@jit_step
def step_backward(
    delta_ptr, w_hh_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, i1_ptr, f1_ptr, g1_ptr, o1_ptr,
    tanhc1_ptr, c1_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr, dh_prev_ptr, dc_prev_ptr, batch_sizes_ptr, starts_ptr,
    carry_ptr, products_ptr, factor_ptr, delta_split_ptr, row_amax_ptr, w_hh_amax_ptr, anew_ptr, step, T, N,
    saved_strides, c_init_strides, dy_strides, dh_strides, dc_strides, dh_prev_strides, dc_prev_strides, delta_strides,
    H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, BLOCK_K: tl.constexpr, PARTIALS: tl.constexpr,
    PRECISE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, UNITS] of this step of direction `program_id(2)`."""
    reverse = tl.program_id(2)
    rows = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    n, u = rows[:, None], units[None, :]
    inside = (n < N) & (u < H)
    t = tl.where(reverse == 1, step, T - 1 - step).to(tl.int64)
    t_later = tl.where(reverse == 1, t - 1, t + 1)
    if reverse == 1:
        i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr = i1_ptr, f1_ptr, g1_ptr, o1_ptr, tanhc1_ptr, c1_ptr
    delta_ptr += reverse * (4 * H)
    w_hh_ptr += reverse.to(tl.int64) * (4 * H * H)
    carried_ptr = carry_ptr + reverse.to(tl.int64) * N * H + n * H + u
    carried_dc_ptr = carried_ptr + tl.num_programs(2).to(tl.int64) * N * H

    if step == 0:
        dh = tl.zeros([ROWS, UNITS], tl.float32)
        dc = tl.zeros([ROWS, UNITS], tl.float32)
        if dh_ptr is not None:
            dh += tl.load(
                dh_ptr + reverse * dh_strides[0] + n * dh_strides[1] + u * dh_strides[2], mask=inside, other=0.0
            ).to(tl.float32)
        if dc_ptr is not None:
            dc += tl.load(
                dc_ptr + reverse * dc_strides[0] + n * dc_strides[1] + u * dc_strides[2], mask=inside, other=0.0
            ).to(tl.float32)
        dh += 0.0 * dh
        dc += 0.0 * dc
    else:
        dh = tl.zeros([ROWS, UNITS], tl.float32)
        if products_ptr is not None:
            for partial in tl.static_range(PARTIALS):
                at = (reverse.to(tl.int64) * PARTIALS + partial) * N * H + n * H + u
                dh += tl.load(products_ptr + at, mask=inside, other=0.0)
            if delta_split_ptr is not None:
                row_amax_at = row_amax_ptr + ((step + 1) % 2 * tl.num_programs(2) + reverse) * N + n
                dh = unscaled(unscaled(dh, tl.load(row_amax_at, mask=n < N, other=LEAST_AMAX)), tl.load(w_hh_amax_ptr))
        else:
            later = place_of(t_later, starts_ptr)
            for k_start in range(0, 4 * H, STEP_SUM_LENGTH):
                product = tl.zeros([ROWS, UNITS], tl.float32)
                for k0 in range(k_start, min(4 * H, k_start + STEP_SUM_LENGTH), BLOCK_K):
                    k = k0 + tl.arange(0, BLOCK_K)[None, :]
                    d_inside = with_data(n < N, t_later, n, starts_ptr, batch_sizes_ptr) & (k < 4 * H)
                    d = tl.load(delta_ptr + later * delta_strides[0] + n * delta_strides[1] + k, d_inside, 0.0)
                    w = tl.load(w_hh_ptr + units[:, None] * (4 * H) + k, (units < H)[:, None] & (k < 4 * H), 0.0)
                    if WIDEN:
                        d, w = d.to(tl.float32), w.to(tl.float32)
                    product = tl.dot(d, w.T, product, input_precision="tf32x3" if PRECISE else "tf32")
                dh += product
        if batch_sizes_ptr is not None:
            dh = tl.where(tl.load(batch_sizes_ptr + t_later) > n, dh, tl.load(carried_ptr, mask=inside, other=0.0))
        dc = tl.load(carried_dc_ptr, mask=inside, other=0.0)
        if anew_ptr is not None:  # what the later step did not start from has nothing of its gradient
            later_anew = starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t_later, n, N)
            dh, dc = tl.where(later_anew, 0.0, dh), tl.where(later_anew, 0.0, dc)

    if step == T:
        if dh_prev_ptr is not None:
            at = reverse * dh_prev_strides[0] + n * dh_prev_strides[1] + u * dh_prev_strides[2]
            tl.store(dh_prev_ptr + at, dh.to(dh_prev_ptr.dtype.element_ty), mask=inside)
        if dc_prev_ptr is not None:
            at = reverse * dc_prev_strides[0] + n * dc_prev_strides[1] + u * dc_prev_strides[2]
            tl.store(dc_prev_ptr + at, dc.to(dc_prev_ptr.dtype.element_ty), mask=inside)
    else:
        place = place_of(t, starts_ptr)
        there = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
        at = place * saved_strides[0] + n * saved_strides[1] + u * saved_strides[2]
        i = tl.load(i0_ptr + at, mask=there, other=0.0).to(tl.float32)
        f = tl.load(f0_ptr + at, mask=there, other=0.0).to(tl.float32)
        g = tl.load(g0_ptr + at, mask=there, other=0.0).to(tl.float32)
        o = tl.load(o0_ptr + at, mask=there, other=0.0).to(tl.float32)
        tanhc = tl.load(tanhc0_ptr + at, mask=there, other=0.0).to(tl.float32)
        if starts_ptr is not None:
            t_before = t + tl.where(reverse == 1, 1, -1)
            begun = with_data(inside, t_before, n, starts_ptr, batch_sizes_ptr)
            init_at = c_init_ptr + reverse * c_init_strides[0] + n * c_init_strides[1] + u * c_init_strides[2]
            c_prev = tl.load(init_at, mask=inside & ~begun, other=0.0)
            before_at = place_of(t_before, starts_ptr) * saved_strides[0] + n * saved_strides[1] + u * saved_strides[2]
            c_prev = tl.load(c0_ptr + before_at, mask=begun, other=c_prev)
        elif step == T - 1:
            c_prev = tl.load(
                c_init_ptr + reverse * c_init_strides[0] + n * c_init_strides[1] + u * c_init_strides[2], mask=inside,
                other=0.0,
            )  # fmt: skip
        else:
            c_prev = tl.load(c0_ptr + at + tl.where(reverse == 1, 1, -1) * saved_strides[0], mask=inside, other=0.0)
        if anew_ptr is not None:
            anew = starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t, n, N)
            c_prev = tl.where(anew, 0.0, c_prev)
        dh_t = dh
        if dy_ptr is not None:
            dy = tl.load(
                dy_ptr + place * dy_strides[0] + n * dy_strides[1] + reverse * dy_strides[2] + u * dy_strides[3],
                mask=there, other=0.0,
            )  # fmt: skip
            dh_t = dh_t + dy.to(tl.float32)
        di, df, dg, do, dc_new = gate_gradients(dh_t, dc, i, f, g, o, tanhc, c_prev.to(tl.float32))
        if batch_sizes_ptr is not None:
            valid = tl.load(batch_sizes_ptr + t) > n
            di, df = tl.where(valid, di, 0.0), tl.where(valid, df, 0.0)
            dg, do = tl.where(valid, dg, 0.0), tl.where(valid, do, 0.0)
            dc_new = tl.where(valid, dc_new, dc)
        if batch_sizes_ptr is not None:
            tl.store(carried_ptr, dh, mask=inside)
        tl.store(carried_dc_ptr, dc_new, mask=inside)
        delta_at = delta_ptr + place * delta_strides[0] + n * delta_strides[1] + u
        store_gates(delta_at, di, df, dg, do, there, H)
        if factor_ptr is not None:
            factor_at = factor_ptr + (reverse.to(tl.int64) * N + n) * (4 * H) + u
            store_gates(factor_at, di, df, dg, do, inside, H)
        if delta_split_ptr is not None:
            magnitudes = tl.maximum(tl.maximum(magnitude(di), magnitude(df)), tl.maximum(magnitude(dg), magnitude(do)))
            row_amax = tl.max(tl.maximum(tl.where(inside, magnitudes, 0), LEAST_AMAX), axis=1)[:, None]
            tl.store(row_amax_ptr + (step % 2 * tl.num_programs(2) + reverse) * N + n, row_amax, mask=n < N)
            split_ptr = delta_split_ptr + (reverse.to(tl.int64) * N + n) * (12 * H) + u
            store_split(split_ptr, scaled(di, row_amax), inside, H, PRECISE)
            store_split(split_ptr + H, scaled(df, row_amax), inside, H, PRECISE)
            store_split(split_ptr + 2 * H, scaled(dg, row_amax), inside, H, PRECISE)
            store_split(split_ptr + 3 * H, scaled(do, row_amax), inside, H, PRECISE)


@jit
def store_gates(ptr, i, f, g, o, mask, GATE_STRIDE: tl.constexpr):
    """One value for each gate, GATE_STRIDE apart."""
    dtype = ptr.dtype.element_ty
    tl.store(ptr, i.to(dtype), mask=mask)
    tl.store(ptr + GATE_STRIDE, f.to(dtype), mask=mask)
    tl.store(ptr + 2 * GATE_STRIDE, g.to(dtype), mask=mask)
    tl.store(ptr + 3 * GATE_STRIDE, o.to(dtype), mask=mask)


@jit
def store_split(split_ptr, x, inside, H: tl.constexpr, PRECISE: tl.constexpr):
    """The high part; where precision is wanted, the low and again the high part behind it."""
    high = x.to(tl.float16)
    tl.store(split_ptr, high, mask=inside)
    if PRECISE:
        tl.store(split_ptr + 4 * H, (x - high.to(tl.float32)).to(tl.float16), mask=inside)
        tl.store(split_ptr + 8 * H, high, mask=inside)
