# mypy: ignore-errors
# Gluon compiles these functions from their source: types follow the values.
"""What the programs of a relay do: products of halves, reading what a step needs, passing on."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from aclgrad.gpu.dialect import async_load, barrier

from ...fp16_split import products
from ..persistent.backward_tiles import SUMMED, add_four, fetch, gate_gradients, only

magnitude, scaled, unscaled = (
    gluon.jit(function.fn) for function in (products.magnitude, products.scaled, products.unscaled)
)
LEAST_PEAK = gl.constexpr(products.LEAST_PEAK.value)
UNITS = gl.constexpr(64)  # of a multiplier


@gluon.jit
def resident_halves(source, u0, H: gl.constexpr, COUNT: gl.constexpr, CHUNK: gl.constexpr, WARPS: gl.constexpr,
                    STRIDE: gl.constexpr):  # fmt: skip
    """Take this program's part of one half of w_hh into shared memory, in chunks of the depth."""
    swizzled: gl.constexpr = gl.NVMMASharedLayout(min(2 * CHUNK, 128), 16, 2)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // CHUNK, CHUNK // 8], [WARPS, 1], [1, 0])
    weights = gl.allocate_shared_memory(gl.float16, [COUNT, UNITS, CHUNK], swizzled)
    u = u0 + gl.arange(0, UNITS, gl.SliceLayout(1, layout))[:, None]
    k = gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    for chunk in range(COUNT):
        weights.index(chunk).store(gl.load(source + u * STRIDE + k + chunk * CHUNK, mask=u < H, other=0.0))
    fence_async_shared()
    return weights


@gluon.jit
def ask_for(high, low, at, from_high, from_low, exists, PRECISE: gl.constexpr):
    """Have a chunk of the depth of both halves copied into shared memory."""
    async_load(high.index(at), from_high, mask=exists)
    if PRECISE:
        async_load(low.index(at), from_low, mask=exists)
    async_copy.commit_group()


@gluon.jit
def product_of_halves(from_high, from_low, row_of, count, w_high, w_low, high, low, ROWS: gl.constexpr,
                      COUNT: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
                      PRECISE: gl.constexpr):  # fmt: skip
    """w_hh · gate gradients of rows `row_of` apart: [UNITS, ROWS], in scaled numbers."""
    SIDE: gl.constexpr = WARPS // 4
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, SIDE], [16, ROWS // SIDE, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // CHUNK, CHUNK // 8], [WARPS, 1], [1, 0])
    n = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    at = n * row_of + gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    from_high += at
    from_low += at
    exists = n < count
    for chunk in gl.static_range(STAGES - 1):
        ask_for(
            high, low, chunk, from_high + chunk * CHUNK, from_low + chunk * CHUNK, exists & (chunk < COUNT), PRECISE
        )
    total = gl.zeros([UNITS, ROWS], gl.float32, mma)
    for chunk in range(COUNT):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        later = chunk + STAGES - 1
        wanted = exists & (later < COUNT)
        ask_for(high, low, later % STAGES, from_high + later * CHUNK, from_low + later * CHUNK, wanted, PRECISE)
        arrived = high.index(chunk % STAGES).permute((1, 0))
        if PRECISE:  # a matrix unit cuts its sums off rather than rounding them, so these begin anew each time
            rest = low.index(chunk % STAGES).permute((1, 0))
            fresh = gl.zeros([UNITS, ROWS], gl.float32, mma)
            fresh = warpgroup_mma(w_high.index(chunk), rest, fresh, use_acc=False, is_async=True)
            fresh = warpgroup_mma(w_low.index(chunk), arrived, fresh, is_async=True)
            fresh = warpgroup_mma(w_high.index(chunk), arrived, fresh, is_async=True)
            total += warpgroup_mma_wait(0, deps=[fresh])
        else:
            total = warpgroup_mma(w_high.index(chunk), arrived, total, is_async=True)
            total = warpgroup_mma_wait(0, deps=[total])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def fetch_row(saved, dy, t, n, u, mine, saved_of, dy_of):
    """What step t of the forward direction reads for row n; see `fetch`."""
    i, f, g, o, tanhc, c = saved
    return fetch(i, f, g, o, tanhc, c, dy, t, t - 1, t == 0, n * saved_of[1] + u * saved_of[2],
                 n * dy_of[1] + u * dy_of[3], mine, saved_of[0], dy_of[0])  # fmt: skip


@gluon.jit
def gathered(partial, own, u, mine, row_peak, w_peak, H: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr):
    """The products of a row, added up: the dh that it passes to the step before."""
    at = partial + own * H + u
    total = gl.load(at, mask=mine, other=0.0, cache_modifier=".cg")
    for k in gl.static_range(1, PARTS):
        total += gl.load(at + k * (ROWS * H), mask=mine, other=0.0, cache_modifier=".cg")
    return unscaled(unscaled(total, row_peak), w_peak)


@gluon.jit
def pass_on(gradient, dc, ahead, start, start_of, sizes, delta_high, delta_low, peaks, now, row_of, t, n, u, exists,
            H: gl.constexpr, PRECISE: gl.constexpr):  # fmt: skip
    """The gate gradients of a row at step t, passed on in halves: they, the new dc and the row's largest magnitude."""
    mine = (u < H) & exists
    s_i, s_f, s_g, s_o, s_tanhc, s_c, y = ahead
    if t == 0:
        s_c = gl.load(start + n * start_of[1] + u * start_of[2], mask=mine, other=0.0)
    di, df, dg, do, dc_new = gate_gradients(gradient + y, dc, s_i, s_f, s_g, s_o, s_tanhc, s_c)
    if sizes is not None:
        valid = gl.load(sizes + t) > n
        di, df, dg, do, dc_new = only(valid, di, df, dg, do, dc_new, dc)
    most = gl.maximum(gl.maximum(magnitude(di), magnitude(df)), gl.maximum(magnitude(dg), magnitude(do)))
    largest = gl.maximum(gl.max(gl.where(mine, most, 0), axis=0), LEAST_PEAK)
    at = now + n * row_of
    put_halves(delta_high, delta_low, at + u, scaled(di, largest), mine, PRECISE)
    put_halves(delta_high, delta_low, at + H + u, scaled(df, largest), mine, PRECISE)
    put_halves(delta_high, delta_low, at + 2 * H + u, scaled(dg, largest), mine, PRECISE)
    put_halves(delta_high, delta_low, at + 3 * H + u, scaled(do, largest), mine, PRECISE)
    gl.store(peaks + at // (4 * H), largest, mask=exists)
    return (
        gl.where(mine, di, 0.0),
        gl.where(mine, df, 0.0),
        gl.where(mine, dg, 0.0),
        gl.where(mine, do, 0.0),
        dc_new,
        largest,
    )


@gluon.jit
def set_aside(to_sums, sum_i, sum_f, sum_g, sum_o, s, T, mask, H: gl.constexpr):
    """Every so many steps, and after the last: add the sums to those before, and begin anew."""
    if (s % SUMMED == SUMMED - 1) | (s == T - 1):
        add_four(to_sums, sum_i, sum_f, sum_g, sum_o, mask, s >= SUMMED, H)
        sum_i = gl.zeros_like(sum_i)
        sum_f = gl.zeros_like(sum_f)
        sum_g = gl.zeros_like(sum_g)
        sum_o = gl.zeros_like(sum_o)
    return sum_i, sum_f, sum_g, sum_o


@gluon.jit
def put_halves(high, low, at, x, mine, PRECISE: gl.constexpr):
    """Both halves of x, or the high one alone."""
    leading = x.to(gl.float16)
    gl.store(high + at, leading, mask=mine)
    if PRECISE:
        gl.store(low + at, (x - leading.to(gl.float32)).to(gl.float16), mask=mine)
