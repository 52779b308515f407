# mypy: ignore-errors
# ruff: noqa: RUF005, SIM102
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""The gradient's steps of a layer in one launch: a persistent grid whose programs exchange gate gradients.

The hidden units are cut into slices of UNITS, the batch into groups of ROWS · ROW_BLOCKS rows; groups and directions
have nothing to do with each other. A program keeps its part of w_hh on chip for all steps, or reads it at each step
where it is too large. At each step it computes the gate gradients of its own units and rows, writes them to `delta`,
where the products of the layer want them anyway, and waits at the grid barrier of its group. Then it multiplies what
all have written with its part of w_hh.

With SPLIT_K = 1 that part is all 4H rows of its units, and the product is the next step's dh. Otherwise SPLIT_K
programs share a slice, each with 4H / SPLIT_K rows, and own 1 / SPLIT_K of its units: their products are partial sums,
exchanged the same way. That costs a second grid barrier and saves reading gate gradients, which is what large sizes
spend time on.

Every warp multiplies another range of the depth, so that nothing is read twice, and the warps' sums are added at the
end, in one order. Tiles are [units, rows]: a matrix unit takes 16 units and as few as 8 rows. For half precision and
many rows, warpgroups multiply from shared memory instead.

What a row that starts a step `anew` had before has no part in it, and gets nothing of its gradient.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..backward_step import (
    STEPS_PER_SUM,
    add_sums,
    gate_gradients,
    load_state,
    load_step,
    mask_gradients,
    place_of,
    replaced,
    starts_anew,
    store_gates,
    store_state,
    with_data,
)
from ..barrier import COUNTER_WORDS, arrive, wait_for
from .backward_products import (
    IN_SHARED_FOR_WARPGROUPS,
    TILE_K,
    delta_positions,
    load_weights,
    load_weights_for_warpgroups,
    multiply_by_warpgroups,
    multiply_by_warps,
    partial_offsets,
    weight_positions,
)


@gluon.jit
def persistent_backward(
    delta_ptr, w_hh_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, i1_ptr, f1_ptr, g1_ptr, o1_ptr,
    tanhc1_ptr, c1_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr, dh_prev_ptr, dc_prev_ptr, batch_sizes_ptr, starts_ptr,
    bias_sums_ptr, partial_ptr, counters_ptr, anew_ptr, T, N, saved_strides, c_init_strides, dy_strides, dh_strides,
    dc_strides, dh_prev_strides, dc_prev_strides, delta_strides, H: gl.constexpr, ROWS: gl.constexpr,
    ROW_BLOCKS: gl.constexpr, UNITS: gl.constexpr, SPLIT_K: gl.constexpr, BLOCK_K: gl.constexpr,
    K_BLOCKS: gl.constexpr, WARPS: gl.constexpr, VECTOR: gl.constexpr, WEIGHTS_IN: gl.constexpr, STAGES: gl.constexpr,
    PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices · SPLIT_K, groups of rows, directions; all resident at once.

    It is long because the state of its row blocks is local: functions would take and return most of it.
    """
    OWN_UNITS: gl.constexpr = UNITS // SPLIT_K
    EXACT: gl.constexpr = SPLIT_K * WARPS * K_BLOCKS * BLOCK_K == 4 * H
    dtype: gl.constexpr = delta_ptr.dtype.element_ty
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, mma, VECTOR)
    d_layout: gl.constexpr = gl.DotOperandLayout(1, mma, VECTOR)
    LANES: gl.constexpr = min(UNITS, 32)
    ADDENDS: gl.constexpr = 1 if WEIGHTS_IN == IN_SHARED_FOR_WARPGROUPS else WARPS
    addends_layout: gl.constexpr = gl.BlockedLayout([ADDENDS, 1, 1], [1, LANES, 32 // LANES], [1, 1, WARPS], [1, 2, 0])
    unit_layout: gl.constexpr = gl.SliceLayout(0, addends_layout)
    OWN_LANES: gl.constexpr = min(OWN_UNITS, 32)
    split_layout: gl.constexpr = gl.BlockedLayout(
        [SPLIT_K, 1, 1], [1, OWN_LANES, 32 // OWN_LANES], [1, 1, WARPS], [1, 2, 0]
    )
    own_layout: gl.constexpr = unit_layout if SPLIT_K == 1 else gl.SliceLayout(0, split_layout)

    slice_ = gl.program_id(0) // SPLIT_K
    k_part = gl.program_id(0) % SPLIT_K
    programs = gl.num_programs(0)
    reverse = gl.program_id(2)
    group = reverse * gl.num_programs(1) + gl.program_id(1)
    n0 = gl.program_id(1) * (ROWS * ROW_BLOCKS)
    counters_ptr += group * ROW_BLOCKS * (programs + 1) * COUNTER_WORDS
    partial_ptr += group * ROW_BLOCKS * programs * (UNITS * ROWS)
    delta_ptr += reverse * (4 * H)
    w_hh_ptr += reverse * (4 * H * H)
    if reverse == 1:
        i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr = i1_ptr, f1_ptr, g1_ptr, o1_ptr, tanhc1_ptr, c1_ptr

    # the operands of the product
    k0 = k_part * (WARPS * K_BLOCKS * BLOCK_K)
    w_unit, w_k = weight_positions(slice_, k0, UNITS, WARPS, K_BLOCKS, BLOCK_K, w_layout)
    w_at = w_unit * (4 * H) + w_k
    if WEIGHTS_IN == IN_SHARED_FOR_WARPGROUPS:
        weights = load_weights_for_warpgroups(
            w_hh_ptr, slice_ * UNITS, k0, H, UNITS, WARPS * K_BLOCKS * BLOCK_K // TILE_K, WARPS
        )
        stages = gl.allocate_shared_memory(dtype, [STAGES, ROWS, TILE_K], gl.NVMMASharedLayout(128, 16, 2))
    else:
        weights = load_weights(
            w_hh_ptr + w_at, w_unit < H, w_k, 4 * H, EXACT, K_BLOCKS, WARPS, UNITS, BLOCK_K, VECTOR, WEIGHTS_IN
        )
    d_row, d_k = delta_positions(n0, k0, ROWS, WARPS, K_BLOCKS, BLOCK_K, d_layout)

    # the units and rows it owns, and the partial sums it sends and takes
    u = (slice_ * UNITS + k_part * OWN_UNITS + gl.arange(0, OWN_UNITS, gl.SliceLayout(1, own_layout)))[:, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, own_layout))[None, :]
    sent_offsets, taken_offsets = partial_offsets(
        slice_, k_part, UNITS, OWN_UNITS, ROWS, SPLIT_K, unit_layout, split_layout
    )

    t_step = gl.where(reverse == 1, 1, -1)
    t = gl.where(reverse == 1, 0, T - 1)
    dhs = ()
    dcs = ()
    c_inits = ()
    prefetched = ()
    anews = ()
    later_anews = ()
    for r in gl.static_range(ROW_BLOCKS):
        n = row + r * ROWS
        inside = (n < N) & (u < H)
        dhs = dhs + (load_state(dh_ptr, dh_strides, reverse, n, u, inside),)
        dcs = dcs + (load_state(dc_ptr, dc_strides, reverse, n, u, inside),)
        c_inits = c_inits + (
            gl.load(
                c_init_ptr + reverse * c_init_strides[0] + n * c_init_strides[1] + u * c_init_strides[2],
                mask=inside,
                other=0.0,
            ),
        )
        loaded = load_step(
            i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, dy_ptr, t, t + t_step, T == 1, n,
            n * saved_strides[1] + u * saved_strides[2],
            n * dy_strides[1] + reverse * dy_strides[2] + u * dy_strides[3], inside, saved_strides[0], dy_strides[0],
            batch_sizes_ptr, starts_ptr, c_inits[r],
        )  # fmt: skip
        prefetched = prefetched + (loaded,)
        if anew_ptr is not None:
            anews = anews + (starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, t, n, N),)
            later_anews = later_anews + (n < 0,)
    sum_i = gl.zeros([OWN_UNITS, ROWS], gl.float32, own_layout)
    sum_f = gl.zeros([OWN_UNITS, ROWS], gl.float32, own_layout)
    sum_g = gl.zeros([OWN_UNITS, ROWS], gl.float32, own_layout)
    sum_o = gl.zeros([OWN_UNITS, ROWS], gl.float32, own_layout)

    units = slice_ * UNITS + k_part * OWN_UNITS + gl.arange(0, OWN_UNITS, gl.SliceLayout(1, own_layout))
    own_sums_ptr = bias_sums_ptr + (gl.program_id(1) * gl.num_programs(2) + reverse) * (4 * H) + units

    for s in range(T + 1):
        delta_t_ptr = delta_ptr + place_of(t, starts_ptr) * delta_strides[0]
        rows = N
        if starts_ptr is not None:
            rows = gl.load(batch_sizes_ptr + t).to(gl.int32)
        for r in gl.static_range(ROW_BLOCKS):
            n = row + r * ROWS
            inside = (n < N) & (u < H)
            dh = dhs[r]
            if SPLIT_K > 1:
                if s > 0:
                    wait_for(counters_ptr + (r * (programs + 1) + 1 + slice_) * COUNTER_WORDS, s * SPLIT_K)
                    partials = gl.load(
                        partial_ptr + r * programs * (UNITS * ROWS) + taken_offsets, cache_modifier=".cg"
                    )
                    product = gl.sum(partials, axis=0)
                    if batch_sizes_ptr is not None:
                        product = gl.where(gl.load(batch_sizes_ptr + t - t_step) > n, product, dh)
                    dh = product
                    dhs = replaced(dhs, r, dh)
            if anew_ptr is not None:  # what the later step did not start from has nothing of its gradient
                dh = gl.where(later_anews[r], 0.0, dh)
                dhs = replaced(dhs, r, dh)
                dcs = replaced(dcs, r, gl.where(later_anews[r], 0.0, dcs[r]))
            if s < T:
                i, f, g, o, tanhc, c, dy = prefetched[r]
                c_prev = gl.where(s == T - 1, c_inits[r], c).to(gl.float32)
                if anew_ptr is not None:
                    c_prev = gl.where(anews[r], 0.0, c_prev)
                di, df, dg, do, dc_new = gate_gradients(
                    dh + dy.to(gl.float32), dcs[r], i.to(gl.float32), f.to(gl.float32), g.to(gl.float32),
                    o.to(gl.float32), tanhc.to(gl.float32), c_prev,
                )  # fmt: skip
                if batch_sizes_ptr is not None:
                    valid = gl.load(batch_sizes_ptr + t) > n
                    di, df, dg, do, dc_new = mask_gradients(valid, di, df, dg, do, dc_new, dcs[r])
                dcs = replaced(dcs, r, dc_new)
                written = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
                store_gates(delta_t_ptr + n * delta_strides[1] + u, di, df, dg, do, written, H)
                arrive(counters_ptr + r * (programs + 1) * COUNTER_WORDS)
                sum_i += gl.where(inside, di, 0.0)
                sum_f += gl.where(inside, df, 0.0)
                sum_g += gl.where(inside, dg, 0.0)
                sum_o += gl.where(inside, do, 0.0)
                after = gl.where(s + 1 < T, t + t_step, t)
                loaded = load_step(
                    i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, dy_ptr, after, after + t_step, s + 2 >= T, n,
                    n * saved_strides[1] + u * saved_strides[2],
                    n * dy_strides[1] + reverse * dy_strides[2] + u * dy_strides[3], inside, saved_strides[0],
                    dy_strides[0], batch_sizes_ptr, starts_ptr, c_inits[r],
                )  # fmt: skip
                prefetched = replaced(prefetched, r, loaded)
                if anew_ptr is not None:
                    later_anews = replaced(later_anews, r, anews[r])
                    flags = starts_anew(anew_ptr, starts_ptr, batch_sizes_ptr, reverse, after, n, N)
                    anews = replaced(anews, r, flags)
        if s < T:
            if dtype == gl.float32:  # a long sum in one go would be less accurate than the rest
                if s % STEPS_PER_SUM == STEPS_PER_SUM - 1:
                    add_sums(own_sums_ptr, sum_i, sum_f, sum_g, sum_o, units < H, s >= STEPS_PER_SUM, H)
                    sum_i = gl.zeros_like(sum_i)
                    sum_f = gl.zeros_like(sum_f)
                    sum_g = gl.zeros_like(sum_g)
                    sum_o = gl.zeros_like(sum_o)
            for r in gl.static_range(ROW_BLOCKS):
                d_n = d_row + r * ROWS
                wait_for(counters_ptr + r * (programs + 1) * COUNTER_WORDS, (s + 1) * programs)
                if WEIGHTS_IN == IN_SHARED_FOR_WARPGROUPS:
                    total = multiply_by_warpgroups(
                        delta_t_ptr, n0 + r * ROWS, rows, delta_strides[1], k0, weights, stages, UNITS, ROWS,
                        WARPS * K_BLOCKS * BLOCK_K // TILE_K, STAGES, WARPS,
                    )  # fmt: skip
                    product = gl.convert_layout(total, unit_layout)
                else:
                    total = multiply_by_warps(
                        delta_t_ptr + d_n * delta_strides[1], d_n < rows, d_k, weights, w_hh_ptr + w_at, w_unit < H,
                        w_k, UNITS, ROWS, 4 * H, EXACT, K_BLOCKS, BLOCK_K, WARPS, mma, w_layout, WEIGHTS_IN, PRECISE,
                    )  # fmt: skip
                    product = gl.sum(gl.convert_layout(total, addends_layout), axis=0)
                if SPLIT_K > 1:
                    gl.store(partial_ptr + r * programs * (UNITS * ROWS) + sent_offsets, product)
                    arrive(counters_ptr + (r * (programs + 1) + 1 + slice_) * COUNTER_WORDS)
                else:
                    if batch_sizes_ptr is not None:
                        product = gl.where(gl.load(batch_sizes_ptr + t) > row + r * ROWS, product, dhs[r])
                    dhs = replaced(dhs, r, product)
            t += t_step

    for r in gl.static_range(ROW_BLOCKS):
        n = row + r * ROWS
        inside = (n < N) & (u < H)
        store_state(dh_prev_ptr, dh_prev_strides, reverse, n, u, inside, dhs[r])
        store_state(dc_prev_ptr, dc_prev_strides, reverse, n, u, inside, dcs[r])
    before = (dtype == gl.float32) & (T >= STEPS_PER_SUM)
    add_sums(own_sums_ptr, sum_i, sum_f, sum_g, sum_o, units < H, before, H)
