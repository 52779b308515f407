# mypy: ignore-errors
# ruff: noqa: RUF005, SIM102
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""All steps of a layer in one launch: a team of programs that stay resident and pass gate gradients to each other.

The hidden units are cut into slices of UNITS, the batch into groups of ROWS · CHUNKS rows; groups and directions have
nothing to do with each other. A program keeps its part of w_hh on chip for all steps, or reads it at each step where it
is too large. At each step it computes the gate gradients of its own units and rows, writes them to `delta`, where the
products of the layer want them anyway, and waits until all programs of its group have done so. Then it multiplies what
all have written with its part of w_hh.

With PARTS = 1 that part is all 4H rows of its units, and the product is the next step's dh. Otherwise PARTS programs
share a slice, each with 4H / PARTS rows, and own 1 / PARTS of its units: their products are partial sums, exchanged
the same way. That costs a second meeting and saves reading gate gradients, which is what large sizes spend time on.

Every warp multiplies another range of the 4H rows, so that nothing is read twice, and the warps' sums are added at the
end, in one order. Tiles are [units, rows]: a matrix unit takes 16 units and as few as 8 rows. A wide team, for half
precision and many rows, lets warpgroups multiply from shared memory instead.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .backward_tiles import (
    CHUNK,
    LINE,
    SUMMED,
    WIDE,
    add_four,
    arrive,
    fetch,
    gate_gradients,
    multiply_resident,
    only,
    put_four,
    put_state,
    replaced,
    resident_weights,
    state,
    wait_for,
    wide_product,
    wide_weights,
)


@gluon.jit
def recur(
    delta, w_hh, i0, f0, g0, o0, tanhc0, c0, i1, f1, g1, o1, tanhc1, c1, start, dy, dh, dc, dh_prev, dc_prev, sizes,
    sums, partial, counters, T, N, saved_of, start_of, dy_of, dh_of, dc_of, dh_prev_of, dc_prev_of, delta_of,
    H: gl.constexpr, ROWS: gl.constexpr, CHUNKS: gl.constexpr, UNITS: gl.constexpr, PARTS: gl.constexpr,
    DEEP: gl.constexpr, SUBS: gl.constexpr, WARPS: gl.constexpr, VECTOR: gl.constexpr, PLACE: gl.constexpr,
    STAGES: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices · PARTS, groups of rows, directions; all resident at once."""
    OWN: gl.constexpr = UNITS // PARTS
    EXACT: gl.constexpr = PARTS * WARPS * SUBS * DEEP == 4 * H
    dtype: gl.constexpr = delta.dtype.element_ty
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, mma, VECTOR)
    d_layout: gl.constexpr = gl.DotOperandLayout(1, mma, VECTOR)
    ACROSS: gl.constexpr = min(UNITS, 32)
    ADDED: gl.constexpr = 1 if PLACE == WIDE else WARPS
    gathered: gl.constexpr = gl.BlockedLayout([ADDED, 1, 1], [1, ACROSS, 32 // ACROSS], [1, 1, WARPS], [1, 2, 0])
    whole: gl.constexpr = gl.SliceLayout(0, gathered)
    OWN_ACROSS: gl.constexpr = min(OWN, 32)
    parts: gl.constexpr = gl.BlockedLayout([PARTS, 1, 1], [1, OWN_ACROSS, 32 // OWN_ACROSS], [1, 1, WARPS], [1, 2, 0])
    cell: gl.constexpr = whole if PARTS == 1 else gl.SliceLayout(0, parts)

    share = gl.program_id(0) // PARTS
    part = gl.program_id(0) % PARTS
    members = gl.num_programs(0)
    reverse = gl.program_id(2)
    group = reverse * gl.num_programs(1) + gl.program_id(1)
    n0 = gl.program_id(1) * (ROWS * CHUNKS)
    counters += group * CHUNKS * (members + 1) * LINE
    partial += group * CHUNKS * members * (UNITS * ROWS)
    delta += reverse * (4 * H)
    w_hh += reverse * (4 * H * H)
    if reverse == 1:
        i0 = i1
        f0 = f1
        g0 = g1
        o0 = o1
        tanhc0 = tanhc1
        c0 = c1

    # the operands of the product
    k0 = part * (WARPS * SUBS * DEEP)
    w_warp = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, w_layout)))[:, None, None]
    w_unit = share * UNITS + gl.arange(0, UNITS, gl.SliceLayout(0, gl.SliceLayout(2, w_layout)))[None, :, None]
    w_k = (
        k0 + w_warp * (SUBS * DEEP) + gl.arange(0, DEEP, gl.SliceLayout(0, gl.SliceLayout(1, w_layout)))[None, None, :]
    )
    w_at = w_unit * (4 * H) + w_k
    if PLACE == WIDE:
        weights = wide_weights(w_hh, share * UNITS, k0, H, UNITS, WARPS * SUBS * DEEP // CHUNK, WARPS)
        stages = gl.allocate_shared_memory(dtype, [STAGES, ROWS, CHUNK], gl.NVMMASharedLayout(128, 16, 2))
    else:
        weights = resident_weights(w_hh + w_at, w_unit < H, w_k, 4 * H, EXACT, SUBS, WARPS, UNITS, DEEP, VECTOR, PLACE)
    d_warp = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, d_layout)))[:, None, None]
    d_row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, d_layout)))[None, None, :]
    d_k = (
        k0 + d_warp * (SUBS * DEEP) + gl.arange(0, DEEP, gl.SliceLayout(0, gl.SliceLayout(2, d_layout)))[None, :, None]
    )

    # the units and rows it owns, and the partial sums it sends and takes
    u = (share * UNITS + part * OWN + gl.arange(0, OWN, gl.SliceLayout(1, cell)))[:, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, cell))[None, :]
    sent = gl.program_id(0) * (UNITS * ROWS) + gl.arange(0, UNITS, gl.SliceLayout(1, whole))[:, None]
    sent += gl.arange(0, ROWS, gl.SliceLayout(0, whole))[None, :] * UNITS
    taken = (share * PARTS + gl.arange(0, PARTS, gl.SliceLayout(1, gl.SliceLayout(2, parts)))[:, None, None]) * (
        UNITS * ROWS
    )
    taken += part * OWN + gl.arange(0, OWN, gl.SliceLayout(0, gl.SliceLayout(2, parts)))[None, :, None]
    taken += gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, parts)))[None, None, :] * UNITS

    step = gl.where(reverse == 1, 1, -1)
    t = gl.where(reverse == 1, 0, T - 1)
    dhs = ()
    dcs = ()
    starts = ()
    ahead = ()
    for r in gl.static_range(CHUNKS):
        n = row + r * ROWS
        mine = (n < N) & (u < H)
        dhs = dhs + (state(dh, dh_of, reverse, n, u, mine),)
        dcs = dcs + (state(dc, dc_of, reverse, n, u, mine),)
        starts = starts + (
            gl.load(start + reverse * start_of[0] + n * start_of[1] + u * start_of[2], mask=mine, other=0.0),
        )
        ahead = ahead + (
            fetch(i0, f0, g0, o0, tanhc0, c0, dy, t, t + step, T == 1, n * saved_of[1] + u * saved_of[2],
                  n * dy_of[1] + reverse * dy_of[2] + u * dy_of[3], mine, saved_of[0], dy_of[0]),
        )  # fmt: skip
    sum_i = gl.zeros([OWN, ROWS], gl.float32, cell)
    sum_f = gl.zeros([OWN, ROWS], gl.float32, cell)
    sum_g = gl.zeros([OWN, ROWS], gl.float32, cell)
    sum_o = gl.zeros([OWN, ROWS], gl.float32, cell)

    units = share * UNITS + part * OWN + gl.arange(0, OWN, gl.SliceLayout(1, cell))
    to_sums = sums + (gl.program_id(1) * gl.num_programs(2) + reverse) * (4 * H) + units

    for s in range(T + 1):
        now = delta + t.to(gl.int64) * delta_of[0]
        for r in gl.static_range(CHUNKS):
            n = row + r * ROWS
            mine = (n < N) & (u < H)
            gradient = dhs[r]
            if PARTS > 1:
                if s > 0:
                    wait_for(counters + (r * (members + 1) + 1 + share) * LINE, s * PARTS)
                    pieces = gl.load(partial + r * members * (UNITS * ROWS) + taken, cache_modifier=".cg")
                    fresh = gl.sum(pieces, axis=0)
                    if sizes is not None:
                        fresh = gl.where(gl.load(sizes + t - step) > n, fresh, gradient)
                    gradient = fresh
                    dhs = replaced(dhs, r, gradient)
            if s < T:
                i, f, g, o, tanhc, c, y = ahead[r]
                before = gl.where(s == T - 1, starts[r], c).to(gl.float32)
                di, df, dg, do, dc_new = gate_gradients(
                    gradient + y.to(gl.float32), dcs[r], i.to(gl.float32), f.to(gl.float32), g.to(gl.float32),
                    o.to(gl.float32), tanhc.to(gl.float32), before,
                )  # fmt: skip
                if sizes is not None:
                    valid = gl.load(sizes + t) > n
                    di, df, dg, do, dc_new = only(valid, di, df, dg, do, dc_new, dcs[r])
                dcs = replaced(dcs, r, dc_new)
                put_four(now + n * delta_of[1] + u, di, df, dg, do, mine, H)
                arrive(counters + r * (members + 1) * LINE)
                sum_i += gl.where(mine, di, 0.0)
                sum_f += gl.where(mine, df, 0.0)
                sum_g += gl.where(mine, dg, 0.0)
                sum_o += gl.where(mine, do, 0.0)
                after = gl.where(s + 1 < T, t + step, t)
                ahead = replaced(
                    ahead, r,
                    fetch(i0, f0, g0, o0, tanhc0, c0, dy, after, after + step, s + 2 >= T,
                          n * saved_of[1] + u * saved_of[2], n * dy_of[1] + reverse * dy_of[2] + u * dy_of[3],
                          mine, saved_of[0], dy_of[0]),
                )  # fmt: skip
        if s < T:
            if dtype == gl.float32:  # a long sum in one go would be less accurate than the rest
                if s % SUMMED == SUMMED - 1:
                    add_four(
                        to_sums, gl.sum(sum_i, axis=1), gl.sum(sum_f, axis=1), gl.sum(sum_g, axis=1),
                        gl.sum(sum_o, axis=1), units < H, s >= SUMMED, H,
                    )  # fmt: skip
                    sum_i = gl.zeros_like(sum_i)
                    sum_f = gl.zeros_like(sum_f)
                    sum_g = gl.zeros_like(sum_g)
                    sum_o = gl.zeros_like(sum_o)
            for r in gl.static_range(CHUNKS):
                d_n = d_row + r * ROWS
                wait_for(counters + r * (members + 1) * LINE, (s + 1) * members)
                if PLACE == WIDE:
                    total = wide_product(
                        now, n0 + r * ROWS, N, delta_of[1], k0, weights, stages, UNITS, ROWS,
                        WARPS * SUBS * DEEP // CHUNK, STAGES, WARPS,
                    )  # fmt: skip
                    fresh = gl.convert_layout(total, whole)
                else:
                    total = multiply_resident(
                        now + d_n * delta_of[1], d_n < N, d_k, weights, w_hh + w_at, w_unit < H, w_k, UNITS, ROWS,
                        4 * H, EXACT, SUBS, DEEP, WARPS, mma, w_layout, PLACE, PRECISE,
                    )  # fmt: skip
                    fresh = gl.sum(gl.convert_layout(total, gathered), axis=0)
                if PARTS > 1:
                    gl.store(partial + r * members * (UNITS * ROWS) + sent, fresh)
                    arrive(counters + (r * (members + 1) + 1 + share) * LINE)
                else:
                    if sizes is not None:
                        fresh = gl.where(gl.load(sizes + t) > row + r * ROWS, fresh, dhs[r])
                    dhs = replaced(dhs, r, fresh)
            t += step

    for r in gl.static_range(CHUNKS):
        n = row + r * ROWS
        mine = (n < N) & (u < H)
        put_state(dh_prev, dh_prev_of, reverse, n, u, mine, dhs[r])
        put_state(dc_prev, dc_prev_of, reverse, n, u, mine, dcs[r])
    add_four(
        to_sums, gl.sum(sum_i, axis=1), gl.sum(sum_f, axis=1), gl.sum(sum_g, axis=1), gl.sum(sum_o, axis=1), units < H,
        (dtype == gl.float32) & (T >= SUMMED), H,
    )  # fmt: skip
