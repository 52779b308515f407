# mypy: ignore-errors
# ruff: noqa: RUF005, ARG001
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and parameters
# stand in the order that all recurrences have in common.
"""All steps of a layer in one launch, in float32: a relay of half-precision products by warpgroups. For Hopper.

As in `triton_team`, programs stay resident and keep their part of w_hh on chip, here 64 units by 4H / PARTS gates, in
two halves (see `triton_halves`). They have two jobs at each step. As owners of whole rows of the batch they compute
the gate gradients of these rows, scale them by the largest and pass on their halves; nobody else has the row, so
nobody else needs the scale. As multipliers they take the halves of all rows of their group and pass on the product with
their part of w_hh. The owners add the products up, which gives the next step's dh. Two meetings a step.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..persistent.backward_tiles import (
    LINE,
    arrive,
    put_state,
    replaced,
    state,
    wait_for,
)
from .rows import (
    UNITS,
    fetch_row,
    gathered,
    pass_on,
    product_of_halves,
    resident_halves,
    set_aside,
)


@gluon.jit
def relay(
    delta_high, weights, i, f, g, o, tanhc, c, i1, f1, g1, o1, tanhc1, c1, start, dy, dh, dc, dh_prev, dc_prev, sizes,
    delta_low, sums, partial, peaks, w_peak, counters, T, N, saved_of, start_of, dy_of, dh_of, dc_of, dh_prev_of,
    dc_prev_of, delta_of, H: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr, OWN: gl.constexpr,
    PARTS: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices of units · PARTS, groups of ROWS rows; all resident at once. WIDTH ≥ H is a power of 2.

    `weights` [H, 8H] are the halves of w_hh, `partial` [groups, PARTS, ROWS, H] the products of a step. There is one
    direction: what would be of the other is not used.
    """
    COUNT: gl.constexpr = 4 * H // PARTS // CHUNK
    BLOCK: gl.constexpr = min(ROWS, 128)  # rows that are multiplied at a time, for the registers' sake
    each: gl.constexpr = WIDTH // (32 * WARPS) if WIDTH > 32 * WARPS else 1
    line: gl.constexpr = gl.BlockedLayout([each], [32], [WARPS], [0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, WARPS // 4], [16, BLOCK // (WARPS // 4), 16])
    swizzled: gl.constexpr = gl.NVMMASharedLayout(min(2 * CHUNK, 128), 16, 2)

    me = gl.program_id(0)
    members = gl.num_programs(0)
    share = me // PARTS
    part = me % PARTS
    n0 = gl.program_id(1) * ROWS
    count = gl.minimum(N - n0, ROWS)
    owners = gl.cdiv(count, OWN)
    counters += gl.program_id(1) * 2 * LINE
    partial += gl.program_id(1).to(gl.int64) * (PARTS * ROWS * H)
    weights += part * (COUNT * CHUNK)
    saved = (i, f, g, o, tanhc, c)

    w_high = resident_halves(weights, share * UNITS, H, COUNT, CHUNK, WARPS, 8 * H)
    high = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK, CHUNK], swizzled)
    if PRECISE:
        w_low = resident_halves(weights + 4 * H, share * UNITS, H, COUNT, CHUNK, WARPS, 8 * H)
        low = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK, CHUNK], swizzled)
    else:
        w_low = w_high
        low = high
    p_unit = share * UNITS + gl.arange(0, UNITS, gl.SliceLayout(1, mma))[:, None]
    p_row = gl.arange(0, BLOCK, gl.SliceLayout(0, mma))[None, :]
    sent = partial + (part * ROWS + p_row) * H + p_unit
    of_weights = gl.load(w_peak)

    u = gl.arange(0, WIDTH, line)
    dhs = ()
    dcs = ()
    ahead = ()
    scales = ()
    for r in gl.static_range(OWN):
        own = me * OWN + r
        mine = (u < H) & (own < count)
        dhs = dhs + (gl.zeros([WIDTH], gl.float32, line),)
        dcs = dcs + (state(dc, dc_of, 0, n0 + own, u, mine),)
        ahead = ahead + (fetch_row(saved, dy, T - 1, n0 + own, u, mine, saved_of, dy_of),)
        scales = scales + (of_weights,)
    sum_i = gl.zeros([WIDTH], gl.float32, line)
    sum_f = gl.zeros([WIDTH], gl.float32, line)
    sum_g = gl.zeros([WIDTH], gl.float32, line)
    sum_o = gl.zeros([WIDTH], gl.float32, line)
    to_sums = sums + (gl.program_id(1) * members + me) * (4 * H) + u

    for s in range(T):
        t = T - 1 - s
        now = t.to(gl.int64) * delta_of[0]
        if s > 0:
            wait_for(counters + LINE, s * members)
        for r in gl.static_range(OWN):
            own = me * OWN + r
            n = n0 + own
            mine = (u < H) & (own < count)
            if s > 0:
                gradient = gathered(partial, own, u, mine, scales[r], of_weights, H, ROWS, PARTS)
                if sizes is not None:
                    gradient = gl.where(gl.load(sizes + t + 1) > n, gradient, dhs[r])
            else:
                gradient = state(dh, dh_of, 0, n, u, mine)
            if sizes is not None:
                dhs = replaced(dhs, r, gradient)
            di, df, dg, do, dc_new, largest = pass_on(
                gradient, dcs[r], ahead[r], start, start_of, sizes, delta_high, delta_low, peaks, now, delta_of[1], t,
                n, u, own < count, H, PRECISE,
            )  # fmt: skip
            dcs = replaced(dcs, r, dc_new)
            scales = replaced(scales, r, largest)
            sum_i += di
            sum_f += df
            sum_g += dg
            sum_o += do
        if me < owners:
            arrive(counters)
        for r in gl.static_range(OWN):
            own = me * OWN + r
            mine = (u < H) & (own < count)
            new = fetch_row(saved, dy, gl.maximum(t - 1, 0), n0 + own, u, mine, saved_of, dy_of)
            ahead = replaced(ahead, r, new)
        sum_i, sum_f, sum_g, sum_o = set_aside(to_sums, sum_i, sum_f, sum_g, sum_o, s, T, u < H, H)
        wait_for(counters, (s + 1) * owners)
        for n1 in range(0, ROWS, BLOCK):
            passed = now + (n0 + n1) * delta_of[1] + part * (COUNT * CHUNK)
            total = product_of_halves(
                delta_high + passed, delta_low + passed, delta_of[1], count - n1, w_high, w_low, high, low, BLOCK,
                COUNT, CHUNK, STAGES, WARPS, PRECISE,
            )  # fmt: skip
            gl.store(sent + n1 * H, total, mask=(p_unit < H) & (p_row < count - n1))
        arrive(counters + LINE)

    wait_for(counters + LINE, T * members)
    for r in gl.static_range(OWN):
        own = me * OWN + r
        n = n0 + own
        mine = (u < H) & (own < count)
        gradient = gathered(partial, own, u, mine, scales[r], of_weights, H, ROWS, PARTS)
        if sizes is not None:
            gradient = gl.where(gl.load(sizes) > n, gradient, dhs[r])
        put_state(dh_prev, dh_prev_of, 0, n, u, mine, gradient)
        put_state(dc_prev, dc_prev_of, 0, n, u, mine, dcs[r])
