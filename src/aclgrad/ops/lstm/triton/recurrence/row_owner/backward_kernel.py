# mypy: ignore-errors
# ruff: noqa: RUF005, ARG001
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and parameters
# stand in the order that all recurrences have in common.
"""The gradient's steps of a layer in one launch, in float32: row owners and products by warpgroups. For Hopper.

As in `persistent`, programs stay resident and keep their part of w_hh on chip, here 64 units by 4H / SPLIT_K gates,
split into high and low. They have two jobs at each step. As owners of whole rows of the batch they compute the gate
gradients of these rows, scale them by the row's amax and publish them split; nobody else has the row, so nobody else
needs the scale. As multipliers they take the split gate gradients of all rows of their group and publish the product
with their part of w_hh. The owners add the products up, which gives the next step's dh. Two grid barriers a step.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..backward_step import load_state, place_of, replaced, store_state
from ..barrier import COUNTER_WORDS, arrive, wait_for
from .rows import UNITS, flush_sums, load_row, load_weights, multiply_rows, publish_row, sum_products


@gluon.jit
def row_owner_backward(
    delta_high_ptr, w_hh_split_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, i1_ptr, f1_ptr, g1_ptr, o1_ptr,
    tanhc1_ptr, c1_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr, dh_prev_ptr, dc_prev_ptr, batch_sizes_ptr, starts_ptr,
    delta_low_ptr, bias_sums_ptr, partial_ptr, row_amax_ptr, w_hh_amax_ptr, counters_ptr, T, N, saved_strides,
    c_init_strides, dy_strides, dh_strides, dc_strides, dh_prev_strides, dc_prev_strides, delta_strides,
    H: gl.constexpr, ROW_WIDTH: gl.constexpr, ROWS: gl.constexpr, ROWS_OWNED: gl.constexpr, SPLIT_K: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices of units · SPLIT_K, groups of ROWS rows; all resident at once. ROW_WIDTH ≥ H is a power of 2.

    `w_hh_split` is [H, 8H], `partial` [groups, SPLIT_K, ROWS, H] the products of a step. There is one direction: the
    operands of the other are not used.
    """
    K_BLOCKS: gl.constexpr = 4 * H // SPLIT_K // BLOCK_K
    BLOCK_ROWS: gl.constexpr = min(ROWS, 128)  # rows that are multiplied at a time, for the registers' sake
    VECTOR: gl.constexpr = ROW_WIDTH // (32 * WARPS) if ROW_WIDTH > 32 * WARPS else 1
    row_layout: gl.constexpr = gl.BlockedLayout([VECTOR], [32], [WARPS], [0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, WARPS // 4], [16, BLOCK_ROWS // (WARPS // 4), 16])
    swizzled: gl.constexpr = gl.NVMMASharedLayout(min(2 * BLOCK_K, 128), 16, 2)

    program = gl.program_id(0)
    programs = gl.num_programs(0)
    slice_ = program // SPLIT_K
    k_part = program % SPLIT_K
    n0 = gl.program_id(1) * ROWS
    count = gl.minimum(N - n0, ROWS)
    owners = gl.cdiv(count, ROWS_OWNED)
    counters_ptr += gl.program_id(1) * 2 * COUNTER_WORDS
    partial_ptr += gl.program_id(1).to(gl.int64) * (SPLIT_K * ROWS * H)
    w_hh_split_ptr += k_part * (K_BLOCKS * BLOCK_K)
    saved = (i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr)

    w_high = load_weights(w_hh_split_ptr, slice_ * UNITS, H, K_BLOCKS, BLOCK_K, WARPS, 8 * H)
    high = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK_ROWS, BLOCK_K], swizzled)
    if PRECISE:
        w_low = load_weights(w_hh_split_ptr + 4 * H, slice_ * UNITS, H, K_BLOCKS, BLOCK_K, WARPS, 8 * H)
        low = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK_ROWS, BLOCK_K], swizzled)
    else:
        w_low = w_high
        low = high
    sent_unit = slice_ * UNITS + gl.arange(0, UNITS, gl.SliceLayout(1, mma))[:, None]
    sent_row = gl.arange(0, BLOCK_ROWS, gl.SliceLayout(0, mma))[None, :]
    sent_ptr = partial_ptr + (k_part * ROWS + sent_row) * H + sent_unit
    w_hh_amax = gl.load(w_hh_amax_ptr)

    u = gl.arange(0, ROW_WIDTH, row_layout)
    dhs = ()
    dcs = ()
    prefetched = ()
    row_amaxes = ()
    for r in gl.static_range(ROWS_OWNED):
        own_row = program * ROWS_OWNED + r
        inside = (u < H) & (own_row < count)
        dhs = dhs + (gl.zeros([ROW_WIDTH], gl.float32, row_layout),)
        dcs = dcs + (load_state(dc_ptr, dc_strides, 0, n0 + own_row, u, inside),)
        row = load_row(
            saved, dy_ptr, T - 1, n0 + own_row, u, inside, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr
        )
        prefetched = prefetched + (row,)
        row_amaxes = row_amaxes + (w_hh_amax,)
    sum_i = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_f = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_g = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_o = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    own_sums_ptr = bias_sums_ptr + (gl.program_id(1) * programs + program) * (4 * H) + u

    for s in range(T):
        t = T - 1 - s
        step_offset = place_of(t, starts_ptr) * delta_strides[0]
        rows = count
        if starts_ptr is not None:
            rows = gl.minimum(gl.load(batch_sizes_ptr + t).to(gl.int32) - n0, count)
        if s > 0:
            wait_for(counters_ptr + COUNTER_WORDS, s * programs)
        for r in gl.static_range(ROWS_OWNED):
            own_row = program * ROWS_OWNED + r
            n = n0 + own_row
            inside = (u < H) & (own_row < count)
            if s > 0:
                dh = sum_products(partial_ptr, own_row, u, inside, row_amaxes[r], w_hh_amax, H, ROWS, SPLIT_K)
                if batch_sizes_ptr is not None:
                    dh = gl.where(gl.load(batch_sizes_ptr + t + 1) > n, dh, dhs[r])
            else:
                dh = load_state(dh_ptr, dh_strides, 0, n, u, inside)
            if batch_sizes_ptr is not None:
                dhs = replaced(dhs, r, dh)
            di, df, dg, do, dc_new, row_amax = publish_row(
                dh, dcs[r], prefetched[r], c_init_ptr, c_init_strides, batch_sizes_ptr, starts_ptr, delta_high_ptr,
                delta_low_ptr, row_amax_ptr, step_offset, delta_strides[1], t, n, u, own_row < count, H, PRECISE,
            )  # fmt: skip
            dcs = replaced(dcs, r, dc_new)
            row_amaxes = replaced(row_amaxes, r, row_amax)
            sum_i += di
            sum_f += df
            sum_g += dg
            sum_o += do
        if program < owners:
            arrive(counters_ptr)
        for r in gl.static_range(ROWS_OWNED):
            own_row = program * ROWS_OWNED + r
            inside = (u < H) & (own_row < count)
            row = load_row(
                saved, dy_ptr, gl.maximum(t - 1, 0), n0 + own_row, u, inside, saved_strides, dy_strides,
                batch_sizes_ptr, starts_ptr,
            )  # fmt: skip
            prefetched = replaced(prefetched, r, row)
        sum_i, sum_f, sum_g, sum_o = flush_sums(own_sums_ptr, sum_i, sum_f, sum_g, sum_o, s, T, u < H, H)
        wait_for(counters_ptr, (s + 1) * owners)
        for n1 in range(0, ROWS, BLOCK_ROWS):
            read_offset = step_offset + (n0 + n1) * delta_strides[1] + k_part * (K_BLOCKS * BLOCK_K)
            product = multiply_rows(
                delta_high_ptr + read_offset, delta_low_ptr + read_offset, delta_strides[1], rows - n1, w_high, w_low,
                high, low, BLOCK_ROWS, K_BLOCKS, BLOCK_K, STAGES, WARPS, PRECISE,
            )  # fmt: skip
            gl.store(sent_ptr + n1 * H, product, mask=(sent_unit < H) & (sent_row < count - n1))
        arrive(counters_ptr + COUNTER_WORDS)

    wait_for(counters_ptr + COUNTER_WORDS, T * programs)
    for r in gl.static_range(ROWS_OWNED):
        own_row = program * ROWS_OWNED + r
        n = n0 + own_row
        inside = (u < H) & (own_row < count)
        dh = sum_products(partial_ptr, own_row, u, inside, row_amaxes[r], w_hh_amax, H, ROWS, SPLIT_K)
        if batch_sizes_ptr is not None:
            dh = gl.where(gl.load(batch_sizes_ptr) > n, dh, dhs[r])
        store_state(dh_prev_ptr, dh_prev_strides, 0, n, u, inside, dh)
        store_state(dc_prev_ptr, dc_prev_strides, 0, n, u, inside, dcs[r])
