# mypy: ignore-errors
# ruff: noqa: RUF005, SIM102
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""All steps of a layer's forward pass in one launch: a team of programs that stay resident and pass h to each other.

The hidden units are cut into slices of UNITS, the batch into groups of ROWS · CHUNKS rows; groups and directions have
nothing to do with each other. A program keeps the rows of w_hh that make all four gates of its units, so that c never
leaves its registers. At each step it waits until all programs of its group have written their part of h, multiplies it
with its weights, adds what the layer's input gave, and writes its own part of the next h. That is one meeting a step.
What is saved for the gradient is written after the others have been told, so that nobody waits for it.

`exchange` holds h twice, for even and for odd steps: who writes one has seen that all have read what was there.

WARPS // ACROSS warps share the depth of the products, whose sums are added in one order; ACROSS of them share the
units. Tiles are [units, rows]: a matrix unit takes 16 units and as few as 8 rows.

float32 is multiplied as `triton_products` does it: w_hh and h scaled and taken apart into float16, h by who writes it.
The first step starts from a state of any size; `opening` holds its product with w_hh. Where lengths differ it serves
every row until that has begun.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .backward_tiles import CHUNK, LINE, arrive, replaced, wait_alone_for, wait_for
from .forward_tiles import (
    HIDDEN_SCALE,
    fetch,
    gate_biases,
    gate_products,
    gate_weights,
    gates_apart,
    initial,
    opened,
    over_scale,
    parts_of,
    put,
    read_hidden,
    save,
    stepped,
    wide_product,
    wide_weights,
)

MANY_MEMBERS = gl.constexpr(40)  # from here on a quick step is delayed by those who wait for it


@gluon.jit
def recur_forward(
    exchange, w_hh, w_low, w_peak, gates, x_peak, w_ih_peak, bias, opening, h_start, c_start, output, hy, cy,
    i0, g0, f0, o0, h0, c0, tanhc0, i1, g1, f1, o1, h1, c1, tanhc1, sizes, counters,
    T, N, gates_of, h_start_of, c_start_of, output_of, hy_of, cy_of, saved_of,
    H: gl.constexpr, ROWS: gl.constexpr, CHUNKS: gl.constexpr, UNITS: gl.constexpr, ACROSS: gl.constexpr,
    DEEP: gl.constexpr, SUBS: gl.constexpr, WARPS: gl.constexpr, KEPT: gl.constexpr, LOW_KEPT: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Grid: slices, groups of rows, directions; all resident at once."""
    VECTOR: gl.constexpr = 8
    DEPTHS: gl.constexpr = WARPS // ACROSS
    EXACT: gl.constexpr = DEPTHS * SUBS * DEEP == H
    WIDTH: gl.constexpr = (H + VECTOR - 1) // VECTOR * VECTOR
    SCALED: gl.constexpr = w_peak is not None
    PARTS: gl.constexpr = 1 if w_low is None else 2
    CROWD: gl.constexpr = PARTS == 1 and STAGES == 0 and ROWS == 8 and (H + UNITS - 1) // UNITS >= MANY_MEMBERS
    half: gl.constexpr = w_hh.dtype.element_ty
    dtype: gl.constexpr = output.dtype.element_ty
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [DEPTHS, ACROSS, 1], [1, 16, 8])
    w_layout: gl.constexpr = gl.DotOperandLayout(0, mma, VECTOR)
    d_layout: gl.constexpr = gl.DotOperandLayout(1, mma, VECTOR)
    LANES: gl.constexpr = min(UNITS, 32)
    cell: gl.constexpr = (
        gl.SliceLayout(0, mma) if DEPTHS == 1 else gl.BlockedLayout([1, 1], [LANES, 32 // LANES], [1, WARPS], [0, 1])
    )

    members = gl.num_programs(0)
    reverse = gl.program_id(2)
    n0 = gl.program_id(1) * (ROWS * CHUNKS)
    counters += (reverse * gl.num_programs(1) + gl.program_id(1)) * CHUNKS * LINE
    plane = N * WIDTH
    slot = gl.num_programs(2) * plane * PARTS
    exchange += reverse * plane * PARTS
    gates += reverse * (4 * H)
    w_hh += reverse * (4 * H * H)
    if w_low is not None:
        w_low += reverse * (4 * H * H)
    if i0 is not None:
        if reverse == 1:
            i0 = i1
            g0 = g1
            f0 = f1
            o0 = o1
            h0 = h1
            c0 = c1
            tanhc0 = tanhc1

    # the operands of the product
    if STAGES > 0:
        wide = wide_weights(w_hh, w_low, gl.program_id(0) * UNITS, H, UNITS, PARTS, WARPS)
        stages = gl.allocate_shared_memory(half, [STAGES, ROWS, CHUNK], gl.NVMMASharedLayout(128, 16, 2))
    else:
        w_depth = gl.arange(0, DEPTHS, gl.SliceLayout(1, gl.SliceLayout(2, w_layout)))[:, None, None]
        w_unit = (
            gl.program_id(0) * UNITS
            + gl.arange(0, UNITS, gl.SliceLayout(0, gl.SliceLayout(2, w_layout)))[None, :, None]
        )
        w_k = (
            w_depth * (SUBS * DEEP) + gl.arange(0, DEEP, gl.SliceLayout(0, gl.SliceLayout(1, w_layout)))[None, None, :]
        )
        weights = gate_weights(w_hh, w_unit, w_k, H, EXACT, SUBS, DEPTHS, UNITS, DEEP, VECTOR, KEPT)
        lows = gate_weights(w_low, w_unit, w_k, H, EXACT, SUBS, DEPTHS, UNITS, DEEP, VECTOR, LOW_KEPT)
        d_depth = gl.arange(0, DEPTHS, gl.SliceLayout(1, gl.SliceLayout(2, d_layout)))[:, None, None]
        d_row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, d_layout)))[None, None, :]
        d_k = (
            d_depth * (SUBS * DEEP) + gl.arange(0, DEEP, gl.SliceLayout(0, gl.SliceLayout(2, d_layout)))[None, :, None]
        )

    # the units and rows it owns
    u = (gl.program_id(0) * UNITS + gl.arange(0, UNITS, gl.SliceLayout(1, cell)))[:, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, cell))[None, :]
    w_scale = over_scale(w_peak)
    if SCALED:
        w_scale = w_scale / HIDDEN_SCALE
    x_scale = over_scale(x_peak) * over_scale(w_ih_peak)
    if bias is not None:
        bias += reverse * (4 * H)
    b_i, b_f, b_g, b_o = gate_biases(bias, u, H)

    step = gl.where(reverse == 1, -1, 1)
    t = gl.where(reverse == 1, T - 1, 0)
    cs = ()
    hs = ()
    ahead = ()
    begun = ()
    for r in gl.static_range(CHUNKS):
        n = row + r * ROWS
        mine = (n < N) & (u < H)
        cs = cs + (initial(c_start, c_start_of, reverse, n, u, mine),)
        ahead = ahead + (fetch(gates, t, n * gates_of[1] + u, sizes, mine, gates_of[0], H),)
        begun = begun + (n < 0,)
        if sizes is not None:
            hs = hs + (initial(h_start, h_start_of, reverse, n, u, mine),)

    for s in range(T):
        here = exchange + ((s + 1) % 2) * slot
        there = exchange + (s % 2) * slot
        for r in gl.static_range(CHUNKS):
            n = row + r * ROWS
            mine = (n < N) & (u < H)
            x_i, x_f, x_g, x_o, rows = ahead[r]
            a_i = x_i.to(gl.float32) * x_scale + b_i
            a_f = x_f.to(gl.float32) * x_scale + b_f
            a_g = x_g.to(gl.float32) * x_scale + b_g
            a_o = x_o.to(gl.float32) * x_scale + b_o
            a_i, a_f, a_g, a_o = opened(a_i, a_f, a_g, a_o, opening, s, begun[r], reverse, n, u, sizes, mine, N, H)
            if s > 0:
                if CROWD:
                    wait_alone_for(counters + r * LINE, s * members)
                else:
                    wait_for(counters + r * LINE, s * members)
                if STAGES > 0:
                    total = wide_product(
                        here, plane, n0 + r * ROWS, N, wide, stages, H, 4 * UNITS * PARTS, ROWS, PARTS, STAGES, WARPS
                    )
                    p_i, p_f, p_g, p_o = gates_apart(total, UNITS, ROWS, PARTS, WARPS, cell)
                else:
                    d_n = d_row + r * ROWS
                    ds = read_hidden(here + d_n * WIDTH + d_k, d_n < N, d_k, plane, WIDTH, EXACT, SUBS, DEEP, PARTS)
                    p_i, p_f, p_g, p_o = gate_products(
                        ds, weights, lows, w_hh, w_low, w_unit, w_k, H, EXACT, SUBS, DEEP, UNITS, ROWS, DEPTHS, WARPS,
                        mma, w_layout, cell, KEPT, LOW_KEPT, PARTS,
                    )  # fmt: skip
                a_i += p_i * w_scale
                a_f += p_f * w_scale
                a_g += p_g * w_scale
                a_o += p_o * w_scale
            h = cs[r]
            if sizes is not None:
                h = hs[r]
            i, f, g, o, c, tanhc, h, y, shown, started = stepped(
                a_i, a_f, a_g, a_o, cs[r], h, begun[r], rows > n, sizes, dtype == gl.float32
            )
            if sizes is not None:
                begun = replaced(begun, r, started)
                hs = replaced(hs, r, h.to(dtype).to(gl.float32))
            cs = replaced(cs, r, c.to(dtype).to(gl.float32))
            parts = parts_of(shown, half, SCALED, PARTS)
            in_row = (n < N) & (u < WIDTH)
            for part in gl.static_range(PARTS):
                gl.store(there + part * plane + n * WIDTH + u, gl.where(u < H, parts[part], 0.0), mask=in_row)
            arrive(counters + r * LINE)
            after = gl.where(s + 1 < T, t + step, t)
            ahead = replaced(ahead, r, fetch(gates, after, n * gates_of[1] + u, sizes, mine, gates_of[0], H))
            save(
                i0, g0, f0, o0, h0, c0, tanhc0, output, i, g, f, o, h, c, tanhc, y, t, reverse, n, u, mine, saved_of,
                output_of,
            )  # fmt: skip
            last = mine & (s == T - 1)
            put(hy, reverse * hy_of[0] + n * hy_of[1] + u * hy_of[2], h, last)
            put(cy, reverse * cy_of[0] + n * cy_of[1] + u * cy_of[2], c, last)
        t += step
