"""One step of the recurrence a launch: for devices, shapes and tools that cannot keep a grid resident.

Step s of a chain finds what the previous step left, multiplies its gate gradients with w_hh (or finds that product in
`products`, where a library has made it, in one piece or several to be added), and leaves its own. After the last step
one more launch makes the initial states' gradients.

For products of float32 in halves (see `triton_halves`) a program has whole rows: it finds their largest gate gradient
and leaves the halves of them all, scaled by it.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.ops._shared.lstm_gates_triton import gate_gradients

from ...fp16_split.products import LEAST_PEAK, STEP_PIECE, magnitude, scaled, unscaled


@jit
def advance(  # type: ignore[no-untyped-def]
    delta, weights, i0, f0, g0, o0, tanhc0, c0, i1, f1, g1, o1, tanhc1, c1, start, dy, dh, dc, dh_prev, dc_prev, sizes,
    carry, products, halves, peaks, peak, clock, T, N, saved_of, start_of, dy_of, dh_of, dc_of, dh_prev_of, dc_prev_of,
    delta_of, H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEEP: tl.constexpr, PIECES: tl.constexpr,
    PRECISE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, UNITS] of a step of direction `program_id(2)`.

    Which step it is, is told by `clock`: by what is there or, as there is no need to wait for that, by the address.
    """
    s = tl.load(clock) if INTERPRETED else (clock.to(tl.int64) // 16).to(tl.int32)
    reverse = tl.program_id(2)
    rows = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    n, u = rows[:, None], units[None, :]
    mine = (n < N) & (u < H)
    t = tl.where(reverse == 1, s, T - 1 - s).to(tl.int64)
    later = tl.where(reverse == 1, t - 1, t + 1)
    if reverse == 1:
        i0, f0, g0, o0, tanhc0, c0 = i1, f1, g1, o1, tanhc1, c1
    delta += reverse * (4 * H)
    weights += reverse.to(tl.int64) * (4 * H * H)
    carried = carry + reverse.to(tl.int64) * N * H + n * H + u
    carried_c = carried + tl.num_programs(2).to(tl.int64) * N * H

    if s == 0:
        gradient = tl.zeros([ROWS, UNITS], tl.float32)
        cell = tl.zeros([ROWS, UNITS], tl.float32)
        if dh is not None:
            gradient += tl.load(dh + reverse * dh_of[0] + n * dh_of[1] + u * dh_of[2], mask=mine, other=0.0).to(
                tl.float32
            )
        if dc is not None:
            cell += tl.load(dc + reverse * dc_of[0] + n * dc_of[1] + u * dc_of[2], mask=mine, other=0.0).to(tl.float32)
        gradient += 0.0 * gradient
        cell += 0.0 * cell
    else:
        gradient = tl.zeros([ROWS, UNITS], tl.float32)
        if products is not None:
            for piece in tl.static_range(PIECES):
                at = (reverse.to(tl.int64) * PIECES + piece) * N * H + n * H + u
                gradient += tl.load(products + at, mask=mine, other=0.0)
            if halves is not None:
                row_peaks = peaks + ((s + 1) % 2 * tl.num_programs(2) + reverse) * N + n
                gradient = unscaled(unscaled(gradient, tl.load(row_peaks, mask=n < N, other=LEAST_PEAK)), tl.load(peak))
        else:
            for piece in range(0, 4 * H, STEP_PIECE):
                fresh = tl.zeros([ROWS, UNITS], tl.float32)
                for k0 in range(piece, min(4 * H, piece + STEP_PIECE), DEEP):
                    k = k0 + tl.arange(0, DEEP)[None, :]
                    d = tl.load(delta + later * delta_of[0] + n * delta_of[1] + k, (n < N) & (k < 4 * H), 0.0)
                    w = tl.load(weights + units[:, None] * (4 * H) + k, (units < H)[:, None] & (k < 4 * H), 0.0)
                    if INTERPRETED:
                        d, w = d.to(tl.float32), w.to(tl.float32)
                    fresh = tl.dot(d, w.T, fresh, input_precision="tf32x3" if PRECISE else "tf32")
                gradient += fresh
        if sizes is not None:
            gradient = tl.where(tl.load(sizes + later) > n, gradient, tl.load(carried, mask=mine, other=0.0))
        cell = tl.load(carried_c, mask=mine, other=0.0)

    if s == T:
        if dh_prev is not None:
            at = reverse * dh_prev_of[0] + n * dh_prev_of[1] + u * dh_prev_of[2]
            tl.store(dh_prev + at, gradient.to(dh_prev.dtype.element_ty), mask=mine)
        if dc_prev is not None:
            at = reverse * dc_prev_of[0] + n * dc_prev_of[1] + u * dc_prev_of[2]
            tl.store(dc_prev + at, cell.to(dc_prev.dtype.element_ty), mask=mine)
    else:
        at = t * saved_of[0] + n * saved_of[1] + u * saved_of[2]
        i = tl.load(i0 + at, mask=mine, other=0.0).to(tl.float32)
        f = tl.load(f0 + at, mask=mine, other=0.0).to(tl.float32)
        g = tl.load(g0 + at, mask=mine, other=0.0).to(tl.float32)
        o = tl.load(o0 + at, mask=mine, other=0.0).to(tl.float32)
        tanhc = tl.load(tanhc0 + at, mask=mine, other=0.0).to(tl.float32)
        if s == T - 1:
            c_prev = tl.load(start + reverse * start_of[0] + n * start_of[1] + u * start_of[2], mask=mine, other=0.0)
        else:
            c_prev = tl.load(c0 + at + tl.where(reverse == 1, 1, -1) * saved_of[0], mask=mine, other=0.0)
        total = gradient
        if dy is not None:
            y = tl.load(dy + t * dy_of[0] + n * dy_of[1] + reverse * dy_of[2] + u * dy_of[3], mask=mine, other=0.0)
            total = total + y.to(tl.float32)
        di, df, dg, do, dc_new = gate_gradients(total, cell, i, f, g, o, tanhc, c_prev.to(tl.float32))
        if sizes is not None:
            valid = tl.load(sizes + t) > n
            di, df = tl.where(valid, di, 0.0), tl.where(valid, df, 0.0)
            dg, do = tl.where(valid, dg, 0.0), tl.where(valid, do, 0.0)
            dc_new = tl.where(valid, dc_new, cell)
        if sizes is not None:
            tl.store(carried, gradient, mask=mine)
        tl.store(carried_c, dc_new, mask=mine)
        dtype = delta.dtype.element_ty
        own = delta + t * delta_of[0] + n * delta_of[1] + u
        tl.store(own, di.to(dtype), mask=mine)
        tl.store(own + H, df.to(dtype), mask=mine)
        tl.store(own + 2 * H, dg.to(dtype), mask=mine)
        tl.store(own + 3 * H, do.to(dtype), mask=mine)
        if halves is not None:
            magnitudes = tl.maximum(tl.maximum(magnitude(di), magnitude(df)), tl.maximum(magnitude(dg), magnitude(do)))
            largest = tl.max(tl.maximum(tl.where(mine, magnitudes, 0), LEAST_PEAK), axis=1)[:, None]
            tl.store(peaks + (s % 2 * tl.num_programs(2) + reverse) * N + n, largest, mask=n < N)
            into = halves + (reverse.to(tl.int64) * N + n) * (12 * H) + u
            put_halves(into, scaled(di, largest), mine, H, PRECISE)
            put_halves(into + H, scaled(df, largest), mine, H, PRECISE)
            put_halves(into + 2 * H, scaled(dg, largest), mine, H, PRECISE)
            put_halves(into + 3 * H, scaled(do, largest), mine, H, PRECISE)


@jit
def put_halves(into, x, mine, H: tl.constexpr, PRECISE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The high part; where precision is wanted, the low and again the high part behind it."""
    high = x.to(tl.float16)
    tl.store(into, high, mask=mine)
    if PRECISE:
        tl.store(into + 4 * H, (x - high.to(tl.float32)).to(tl.float16), mask=mine)
        tl.store(into + 8 * H, high, mask=mine)
