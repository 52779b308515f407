# mypy: ignore-errors
# ruff: noqa: RUF005, SIM102
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""The forward steps of a layer in one launch: a persistent grid whose programs exchange h.

The hidden units are cut into slices of UNITS, the batch into groups of ROWS · ROW_BLOCKS rows; groups and directions
have nothing to do with each other. A program keeps the rows of w_hh that make all four gates of its units, so that c
never leaves its registers. At each step it waits at the grid barrier of its group until all have written their part of
h, multiplies it with its weights, adds what the layer's input gave, and writes its own part of the next h. What is
saved for the gradient is written after it has arrived at the next barrier, so that nobody waits for it.

`h_buffer` holds h twice, for even and for odd steps: who writes one has seen that all have read what was there.

K_WARPS warps share the depth of the products, whose sums are added in one order; UNIT_WARPS of them share the units.
Tiles are [units, rows]: a matrix unit takes 16 units and as few as 8 rows. For many rows, warpgroups multiply from
shared memory instead.

float32 is multiplied split into float16: w_hh and h are scaled, h is split by who writes it. The first step starts from
a state of any size; `h0_product` holds its product with w_hh. Where lengths differ it serves every row until that has
begun. Rows that start a step `anew` leave c and the product of h behind.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..backward_step import replaced
from ..barrier import COUNTER_WORDS, arrive, wait_for, wait_for_by_one_thread
from ..forward_step_gluon import (
    H_SCALE,
    add_h0_product,
    inverse_scale,
    load_biases,
    load_gates,
    load_state,
    next_step,
    split_h,
    starts_anew,
    store,
    store_step,
)
from .forward_products import (
    TILE_K,
    h_positions,
    load_h,
    load_weights,
    load_weights_for_warpgroups,
    multiply_by_warpgroups,
    multiply_by_warps,
    split_gates,
    weight_positions,
)

MANY_PROGRAMS = gl.constexpr(40)  # from here on those who poll delay those who arrive


@gluon.jit
def persistent_forward(
    h_buffer_ptr, w_hh_ptr, w_hh_low_ptr, w_hh_amax_ptr, gates_ptr, x_amax_ptr, w_ih_amax_ptr, bias_ptr,
    h0_product_ptr, h_init_ptr, c_init_ptr, output_ptr, hy_ptr, cy_ptr, i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr,
    tanhc0_ptr, i1_ptr, g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr, batch_sizes_ptr, starts_ptr, counters_ptr,
    anew_ptr, T, N, gates_strides, h_init_strides, c_init_strides, output_strides, hy_strides, cy_strides,
    saved_strides, H: gl.constexpr, ROWS: gl.constexpr, ROW_BLOCKS: gl.constexpr, UNITS: gl.constexpr,
    UNIT_WARPS: gl.constexpr, BLOCK_K: gl.constexpr, K_BLOCKS: gl.constexpr, WARPS: gl.constexpr, KEPT: gl.constexpr,
    LOW_KEPT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Grid: slices, groups of rows, directions; all resident at once."""
    VECTOR: gl.constexpr = 8
    K_WARPS: gl.constexpr = WARPS // UNIT_WARPS
    EXACT: gl.constexpr = K_WARPS * K_BLOCKS * BLOCK_K == H
    H_STRIDE: gl.constexpr = (H + VECTOR - 1) // VECTOR * VECTOR
    SCALED: gl.constexpr = w_hh_amax_ptr is not None
    SPLIT: gl.constexpr = 1 if w_hh_low_ptr is None else 2
    POLL_BY_ONE_THREAD: gl.constexpr = (
        SPLIT == 1 and STAGES == 0 and ROWS == 8 and (H + UNITS - 1) // UNITS >= MANY_PROGRAMS
    )
    half: gl.constexpr = w_hh_ptr.dtype.element_ty
    dtype: gl.constexpr = output_ptr.dtype.element_ty
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [K_WARPS, UNIT_WARPS, 1], [1, 16, 8])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, mma, VECTOR)
    h_layout: gl.constexpr = gl.DotOperandLayout(1, mma, VECTOR)
    LANES: gl.constexpr = min(UNITS, 32)
    own_layout: gl.constexpr = (
        gl.SliceLayout(0, mma) if K_WARPS == 1 else gl.BlockedLayout([1, 1], [LANES, 32 // LANES], [1, WARPS], [0, 1])
    )

    programs = gl.num_programs(0)
    reverse = gl.program_id(2)
    n0 = gl.program_id(1) * (ROWS * ROW_BLOCKS)
    counters_ptr += (reverse * gl.num_programs(1) + gl.program_id(1)) * ROW_BLOCKS * COUNTER_WORDS
    plane = N * H_STRIDE
    buffer_size = gl.num_programs(2) * plane * SPLIT
    h_buffer_ptr += reverse * plane * SPLIT
    gates_ptr += reverse * (4 * H)
    w_hh_ptr += reverse * (4 * H * H)
    if w_hh_low_ptr is not None:
        w_hh_low_ptr += reverse * (4 * H * H)
    if i0_ptr is not None:
        if reverse == 1:
            i0_ptr, g0_ptr, f0_ptr, o0_ptr = i1_ptr, g1_ptr, f1_ptr, o1_ptr
            h0_ptr, c0_ptr, tanhc0_ptr = h1_ptr, c1_ptr, tanhc1_ptr

    # the operands of the product
    if STAGES > 0:
        weights = load_weights_for_warpgroups(w_hh_ptr, w_hh_low_ptr, gl.program_id(0) * UNITS, H, UNITS, SPLIT, WARPS)
        stages = gl.allocate_shared_memory(half, [STAGES, ROWS, TILE_K], gl.NVMMASharedLayout(128, 16, 2))
    else:
        w_unit, w_k = weight_positions(UNITS, K_WARPS, K_BLOCKS, BLOCK_K, w_layout)
        weights = load_weights(w_hh_ptr, w_unit, w_k, H, EXACT, K_BLOCKS, K_WARPS, UNITS, BLOCK_K, VECTOR, KEPT)
        low_weights = load_weights(
            w_hh_low_ptr, w_unit, w_k, H, EXACT, K_BLOCKS, K_WARPS, UNITS, BLOCK_K, VECTOR, LOW_KEPT
        )
        h_row, h_k = h_positions(n0, ROWS, K_WARPS, K_BLOCKS, BLOCK_K, h_layout)

    # the units and rows it owns
    u = (gl.program_id(0) * UNITS + gl.arange(0, UNITS, gl.SliceLayout(1, own_layout)))[:, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, own_layout))[None, :]
    w_scale = inverse_scale(w_hh_amax_ptr)
    if SCALED:
        w_scale = w_scale / H_SCALE
    x_scale = inverse_scale(x_amax_ptr) * inverse_scale(w_ih_amax_ptr)
    if bias_ptr is not None:
        bias_ptr += reverse * (4 * H)
    b_i, b_f, b_g, b_o = load_biases(bias_ptr, u, H)

    t_step = gl.where(reverse == 1, -1, 1)
    t = gl.where(reverse == 1, T - 1, 0)
    cs = ()
    hs = ()
    prefetched = ()
    begun = ()
    anews = ()
    for r in gl.static_range(ROW_BLOCKS):
        n = row + r * ROWS
        inside = (n < N) & (u < H)
        cs = cs + (load_state(c_init_ptr, c_init_strides, reverse, n, u, inside),)
        x_gates = load_gates(
            gates_ptr, t, n, n * gates_strides[1] + u, batch_sizes_ptr, starts_ptr, inside, gates_strides[0], H
        )
        prefetched = prefetched + (x_gates,)
        begun = begun + (n < 0,)
        if anew_ptr is not None:
            anews = anews + (starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t, n, N),)
        if batch_sizes_ptr is not None:
            hs = hs + (load_state(h_init_ptr, h_init_strides, reverse, n, u, inside),)

    for s in range(T):
        h_prev_ptr = h_buffer_ptr + ((s + 1) % 2) * buffer_size
        h_next_ptr = h_buffer_ptr + (s % 2) * buffer_size
        for r in gl.static_range(ROW_BLOCKS):
            n = row + r * ROWS
            inside = (n < N) & (u < H)
            x_i, x_f, x_g, x_o, batch_size = prefetched[r]
            a_i = x_i.to(gl.float32) * x_scale + b_i
            a_f = x_f.to(gl.float32) * x_scale + b_f
            a_g = x_g.to(gl.float32) * x_scale + b_g
            a_o = x_o.to(gl.float32) * x_scale + b_o
            starts = inside
            if anew_ptr is not None:
                starts = inside & (anews[r] == 0)
            a_i, a_f, a_g, a_o = add_h0_product(
                a_i, a_f, a_g, a_o, h0_product_ptr, s, begun[r], reverse, n, u, batch_sizes_ptr, starts, N, H
            )
            if s > 0:
                if POLL_BY_ONE_THREAD:
                    wait_for_by_one_thread(counters_ptr + r * COUNTER_WORDS, s * programs)
                else:
                    wait_for(counters_ptr + r * COUNTER_WORDS, s * programs)
                if STAGES > 0:
                    total = multiply_by_warpgroups(
                        h_prev_ptr, plane, n0 + r * ROWS, N, weights, stages, H, 4 * UNITS * SPLIT, ROWS, SPLIT, STAGES,
                        WARPS,
                    )  # fmt: skip
                    p_i, p_f, p_g, p_o = split_gates(total, UNITS, ROWS, SPLIT, WARPS, own_layout)
                else:
                    h_n = h_row + r * ROWS
                    h_blocks = load_h(
                        h_prev_ptr + h_n * H_STRIDE + h_k, h_n < N, h_k, plane, H_STRIDE, EXACT, K_BLOCKS, BLOCK_K,
                        SPLIT,
                    )  # fmt: skip
                    p_i, p_f, p_g, p_o = multiply_by_warps(
                        h_blocks, weights, low_weights, w_hh_ptr, w_hh_low_ptr, w_unit, w_k, H, EXACT, K_BLOCKS,
                        BLOCK_K, UNITS, ROWS, K_WARPS, WARPS, mma, w_layout, own_layout, KEPT, LOW_KEPT, SPLIT,
                    )  # fmt: skip
                if anew_ptr is not None:
                    p_i, p_f = gl.where(anews[r], 0.0, p_i), gl.where(anews[r], 0.0, p_f)
                    p_g, p_o = gl.where(anews[r], 0.0, p_g), gl.where(anews[r], 0.0, p_o)
                a_i += p_i * w_scale
                a_f += p_f * w_scale
                a_g += p_g * w_scale
                a_o += p_o * w_scale
            h = cs[r]
            if batch_sizes_ptr is not None:
                h = hs[r]
            c_prev = cs[r]
            if anew_ptr is not None:
                c_prev = gl.where(anews[r], 0.0, c_prev)
            i, f, g, o, c, tanhc, h, y, h_next, has_begun = next_step(
                a_i, a_f, a_g, a_o, c_prev, h, begun[r], batch_size > n, batch_sizes_ptr, dtype == gl.float32
            )
            if batch_sizes_ptr is not None:
                begun = replaced(begun, r, has_begun)
                hs = replaced(hs, r, h.to(dtype).to(gl.float32))
            cs = replaced(cs, r, c.to(dtype).to(gl.float32))
            h_parts = split_h(h_next, half, SCALED, SPLIT)
            in_buffer = (n < N) & (u < H_STRIDE)
            for part in gl.static_range(SPLIT):
                gl.store(
                    h_next_ptr + part * plane + n * H_STRIDE + u, gl.where(u < H, h_parts[part], 0.0), mask=in_buffer
                )
            arrive(counters_ptr + r * COUNTER_WORDS)
            after = gl.where(s + 1 < T, t + t_step, t)
            x_gates = load_gates(
                gates_ptr, after, n, n * gates_strides[1] + u, batch_sizes_ptr, starts_ptr, inside, gates_strides[0], H
            )
            prefetched = replaced(prefetched, r, x_gates)
            if anew_ptr is not None:
                anews = replaced(anews, r, starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, after, n, N))
            store_step(
                i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, output_ptr, i, g, f, o, h, c, tanhc, y, t,
                reverse, n, u, inside, saved_strides, output_strides, batch_sizes_ptr, starts_ptr,
            )  # fmt: skip
            last = inside & (s == T - 1)
            store(hy_ptr, reverse * hy_strides[0] + n * hy_strides[1] + u * hy_strides[2], h, last)
            store(cy_ptr, reverse * cy_strides[0] + n * cy_strides[1] + u * cy_strides[2], c, last)
        t += t_step
