# mypy: ignore-errors
# ruff: noqa: RUF005
# Gluon compiles these functions from their source: types follow the values, and tuples grow by addition.
"""The warp group that owns rows, in the gradient."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..backward_step import load_state, place_of, replaced, store_state
from ..row_owner.rows import flush_sums, load_row, publish_row, sum_products
from .row_sets import rows_of_set, set_number
from .tile_ring import ROW_SETS


@gluon.jit
def own_rows(
    published, all_multiplied, pointers, T, N, saved_strides, c_init_strides, dy_strides, dh_strides, dc_strides,
    dh_prev_strides, dc_prev_strides, delta_strides, H: gl.constexpr, ROW_WIDTH: gl.constexpr, ROWS: gl.constexpr,
    ROWS_OWNED: gl.constexpr, SPLIT_K: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """The warp group that owns ROWS_OWNED rows of either row set. It prefetches one row's activations."""
    (
        delta_high_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr,
        dh_prev_ptr, dc_prev_ptr, batch_sizes_ptr, starts_ptr, delta_low_ptr, bias_sums_ptr, partial_ptr, row_amax_ptr,
        w_hh_amax_ptr,
    ) = pointers  # fmt: skip
    VECTOR: gl.constexpr = min(4, ROW_WIDTH // 128 if ROW_WIDTH > 128 else 1)
    row_layout: gl.constexpr = gl.BlockedLayout([VECTOR], [32], [4], [0])
    program = gl.program_id(0)
    saved = (i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr)
    w_hh_amax = gl.load(w_hh_amax_ptr)
    u = gl.arange(0, ROW_WIDTH, row_layout)
    partial_ptr += set_number(0).to(gl.int64) * (SPLIT_K * ROWS * H)
    own_sums_ptr = bias_sums_ptr + (gl.program_id(1) * gl.num_programs(0) + program) * (4 * H) + u
    dhs = ()
    dcs = ()
    row_amaxes = ()
    for k in gl.static_range(ROW_SETS * ROWS_OWNED):
        n, exists = owned_row(k, N, ROWS, ROWS_OWNED)
        dhs = dhs + (gl.zeros([ROW_WIDTH], gl.float32, row_layout),)
        dcs = dcs + (load_state(dc_ptr, dc_strides, 0, n, u, (u < H) & exists),)
        row_amaxes = row_amaxes + (w_hh_amax,)
    n, exists = owned_row(0, N, ROWS, ROWS_OWNED)
    prefetched = load_row(
        saved, dy_ptr, T - 1, n, u, (u < H) & exists, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr
    )
    sum_i = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_f = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_g = gl.zeros([ROW_WIDTH], gl.float32, row_layout)
    sum_o = gl.zeros([ROW_WIDTH], gl.float32, row_layout)

    for s in range(T):
        t = T - 1 - s
        step_offset = place_of(t, starts_ptr) * delta_strides[0]
        for k in gl.static_range(ROW_SETS * ROWS_OWNED):
            n, exists = owned_row(k, N, ROWS, ROWS_OWNED)
            row = prefetched
            if k % ROWS_OWNED < ROWS_OWNED - 1:
                prefetched = load_next_row(
                    k, saved, dy_ptr, t, u, N, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr, H, ROWS,
                    ROWS_OWNED,
                )  # fmt: skip
            if s > 0:
                if k % ROWS_OWNED == 0:
                    mbarrier.wait(all_multiplied.index(k // ROWS_OWNED), (s & 1) ^ 1)
                dh = dh_of_row(k, partial_ptr, row_amaxes[k], w_hh_amax, u, exists, H, ROWS, ROWS_OWNED, SPLIT_K)
                if batch_sizes_ptr is not None:
                    dh = gl.where(gl.load(batch_sizes_ptr + t + 1) > n, dh, dhs[k])
            else:
                dh = load_state(dh_ptr, dh_strides, 0, n, u, (u < H) & exists)
            if batch_sizes_ptr is not None:
                dhs = replaced(dhs, k, dh)
            di, df, dg, do, dc_new, row_amax = publish_row(
                dh, dcs[k], row, c_init_ptr, c_init_strides, batch_sizes_ptr, starts_ptr, delta_high_ptr, delta_low_ptr,
                row_amax_ptr, step_offset, delta_strides[1], t, n, u, exists, H, PRECISE,
            )  # fmt: skip
            if k % ROWS_OWNED == ROWS_OWNED - 1:
                mbarrier.arrive(published.index(k // ROWS_OWNED))
                prefetched = load_next_row(
                    k, saved, dy_ptr, t, u, N, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr, H, ROWS,
                    ROWS_OWNED,
                )  # fmt: skip
            dcs = replaced(dcs, k, dc_new)
            row_amaxes = replaced(row_amaxes, k, row_amax)
            sum_i += di
            sum_f += df
            sum_g += dg
            sum_o += do
        sum_i, sum_f, sum_g, sum_o = flush_sums(own_sums_ptr, sum_i, sum_f, sum_g, sum_o, s, T, u < H, H)

    for k in gl.static_range(ROW_SETS * ROWS_OWNED):
        n, exists = owned_row(k, N, ROWS, ROWS_OWNED)
        if k % ROWS_OWNED == 0:
            mbarrier.wait(all_multiplied.index(k // ROWS_OWNED), (T & 1) ^ 1)
        dh = dh_of_row(k, partial_ptr, row_amaxes[k], w_hh_amax, u, exists, H, ROWS, ROWS_OWNED, SPLIT_K)
        if batch_sizes_ptr is not None:
            dh = gl.where(gl.load(batch_sizes_ptr) > n, dh, dhs[k])
        store_state(dh_prev_ptr, dh_prev_strides, 0, n, u, (u < H) & exists, dh)
        store_state(dc_prev_ptr, dc_prev_strides, 0, n, u, (u < H) & exists, dcs[k])


@gluon.jit
def owned_row(INDEX: gl.constexpr, N, ROWS: gl.constexpr, ROWS_OWNED: gl.constexpr):
    """The row that is the owner's by this index, and whether it exists."""
    n0, count = rows_of_set(INDEX // ROWS_OWNED, N, ROWS)
    own_row = gl.program_id(0) * ROWS_OWNED + INDEX % ROWS_OWNED
    return n0 + own_row, own_row < count


@gluon.jit
def load_next_row(
    INDEX: gl.constexpr, saved, dy_ptr, t, u, N, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr,
    H: gl.constexpr, ROWS: gl.constexpr, ROWS_OWNED: gl.constexpr,
):  # fmt: skip
    """The row after the one of this index, or the first one at the step before, if there is one."""
    if INDEX + 1 == ROW_SETS * ROWS_OWNED:
        t = gl.maximum(t - 1, 0)
    n, exists = owned_row((INDEX + 1) % (ROW_SETS * ROWS_OWNED), N, ROWS, ROWS_OWNED)
    inside = (u < H) & exists
    return load_row(saved, dy_ptr, t, n, u, inside, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr)


@gluon.jit
def dh_of_row(
    INDEX: gl.constexpr, partial_ptr, row_amax, w_hh_amax, u, exists, H: gl.constexpr, ROWS: gl.constexpr,
    ROWS_OWNED: gl.constexpr, SPLIT_K: gl.constexpr,
):  # fmt: skip
    """The products of the row of this index, added up."""
    own_row = gl.program_id(0) * ROWS_OWNED + INDEX % ROWS_OWNED
    return sum_products(
        partial_ptr + INDEX // ROWS_OWNED * (SPLIT_K * ROWS * H), own_row, u, (u < H) & exists, row_amax, w_hh_amax, H,
        ROWS, SPLIT_K,
    )  # fmt: skip
