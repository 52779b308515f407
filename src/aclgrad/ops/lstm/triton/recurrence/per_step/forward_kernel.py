"""One step of the forward pass a launch: for devices, shapes and tools that cannot keep a grid resident.

Step s of a chain finds h as the previous step left it in `exchange`, one of two places in turn, multiplies it with w_hh
(or finds that product in `products`, where a library has made it) and adds what the layer's input gave. `carry` holds
c, h and whether a row has begun. See `triton_forward_team` for how float32 is multiplied and for `opening`.
"""

from __future__ import annotations

import triton.language as tl

from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import tanh, when
from aclgrad.ops._shared.lstm_gates_triton import next_state

from ...fp16_split.products import STEP_PIECE, unscaled

HIDDEN_SCALE = tl.constexpr(16384.0)  # |h| ≤ 1, and float16 reaches to 65504
PIECE = tl.constexpr(512)  # terms of half precision that are summed before a sum begins anew


@jit
def sum_biases(total, ih0, hh0, ih1, hh1, WIDTH, strides, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row `program_id(1)` of total [directions, WIDTH]: b_ih + b_hh in their own dtype."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < WIDTH
    if tl.program_id(1) == 0:
        a = tl.load(ih0 + columns * strides[0], mask=inside, other=0.0)
        b = tl.load(hh0 + columns * strides[1], mask=inside, other=0.0)
    else:
        a = tl.load(ih1 + columns * strides[2], mask=inside, other=0.0)
        b = tl.load(hh1 + columns * strides[3], mask=inside, other=0.0)
    value = (a.to(tl.float32) + b.to(tl.float32)).to(ih0.dtype.element_ty)
    tl.store(total + tl.program_id(1) * WIDTH + columns, value.to(tl.float32), mask=inside)


@jit
def load_four(pointer, mask, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """One value for each gate, STEP apart."""
    return (
        tl.load(pointer, mask=mask, other=0.0).to(tl.float32),
        tl.load(pointer + STEP, mask=mask, other=0.0).to(tl.float32),
        tl.load(pointer + 2 * STEP, mask=mask, other=0.0).to(tl.float32),
        tl.load(pointer + 3 * STEP, mask=mask, other=0.0).to(tl.float32),
    )


@jit
def multiply_hidden(  # type: ignore[no-untyped-def]
    h, w_hh, w_low, n, N, u0, H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEEP: tl.constexpr,
    WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """H [ROWS, H] times w_hhᵀ for all four gates of UNITS units: [ROWS, UNITS] each."""
    column = tl.arange(0, 4 * UNITS)[:, None]
    unit = u0 + column // 4
    w_row = ((column % 4) * H + unit).to(tl.int64) * H
    total = tl.zeros([ROWS, 4 * UNITS], tl.float32)
    cross = tl.zeros([ROWS, 4 * UNITS], tl.float32)
    length: tl.constexpr = PIECE if w_low is None else STEP_PIECE
    for piece in range(0, H, length):
        fresh = tl.zeros([ROWS, 4 * UNITS], tl.float32)
        for k0 in range(piece, min(H, piece + length), DEEP):
            k = k0 + tl.arange(0, DEEP)[None, :]
            inside, there = (n < N) & (k < H), (unit < H) & (k < H)
            d = tl.load(h + n * WIDTH + k, mask=inside, other=0.0)
            w = tl.load(w_hh + w_row + k, mask=there, other=0.0)
            if WIDEN:
                d, w = d.to(tl.float32), w.to(tl.float32)
            fresh = tl.dot(d, w.T, fresh)
            if w_low is not None:
                d_low = tl.load(h + (n + N) * WIDTH + k, mask=inside, other=0.0)
                low = tl.load(w_low + w_row + k, mask=there, other=0.0)
                if WIDEN:
                    d_low, low = d_low.to(tl.float32), low.to(tl.float32)
                cross = tl.dot(d_low, w.T, cross)
                cross = tl.dot(d, low.T, cross)
        total += fresh
    even, odd = tl.split(tl.reshape(total + cross, [ROWS, UNITS, 2, 2]))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    return i, f, g, o


@jit
def put(pointer, at, value, mine):  # type: ignore[no-untyped-def]
    """Store, where it is wanted."""
    if pointer is not None:
        tl.store(pointer + at, value.to(pointer.dtype.element_ty), mask=mine)


@jit
def stepped(a_i, a_f, a_g, a_o, c, h, begun, valid, sizes, ROUNDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """A step from the state (c, h): i, f, g, o, c, tanhc, h, what is put out, what is passed on, and who has begun.

    Where lengths differ, a row without data, which is not `valid`, keeps its state and puts out nothing; before its
    first step it passes on nothing, since `opening` stands for its initial state.
    """
    i, f, g, o, c_new = next_state(a_i, a_f, a_g, a_o, c, ROUNDED)
    if sizes is not None:
        c_new = tl.where(valid, c_new, c)
    tanhc = tanh(c_new)
    h_new = o * tanhc
    y = h_new
    shown = h_new
    if sizes is not None:
        y = tl.where(valid, h_new, 0.0)
        h_new = tl.where(valid, h_new, h)
        begun = begun | valid
        shown = tl.where(begun, h_new, 0.0)
    return i, f, g, o, c_new, tanhc, h_new, y, shown, begun


@jit
def save(  # type: ignore[no-untyped-def]
    i0, g0, f0, o0, h0, c0, tanhc0, output, i, g, f, o, h, c, tanhc, y, t, reverse, n, u, mine, saved_of, output_of
):
    """What step t leaves: the output, and whatever else is wanted."""
    at = t.to(tl.int64) * saved_of[0] + n * saved_of[1] + u * saved_of[2]
    put(i0, at, i, mine)
    put(g0, at, g, mine)
    put(f0, at, f, mine)
    put(o0, at, o, mine)
    put(h0, at, h, mine)
    put(c0, at, c, mine)
    put(tanhc0, at, tanhc, mine)
    at = t.to(tl.int64) * output_of[0] + n * output_of[1] + reverse * output_of[2] + u * output_of[3]
    put(output, at, y, mine)


@jit
def advance(  # type: ignore[no-untyped-def]
    exchange, w_hh, w_low, w_peak, gates, x_peak, w_ih_peak, bias, opening, h_start, c_start, output, hy, cy,
    i0, g0, f0, o0, h0, c0, tanhc0, i1, g1, f1, o1, h1, c1, tanhc1, sizes, carry, products, clock,
    T, N, gates_of, h_start_of, c_start_of, output_of, hy_of, cy_of, saved_of,
    H: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, DEEP: tl.constexpr, WIDTH: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, UNITS] of step `clock // 4` of direction `program_id(2)`."""
    s = tl.load(clock) // 4
    reverse = tl.program_id(2)
    n = (tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    u0 = tl.program_id(0) * UNITS
    u = u0 + tl.arange(0, UNITS)[None, :]
    mine = (n < N) & (u < H)
    t = tl.where(reverse == 1, T - 1 - s, s).to(tl.int64)
    if i0 is not None and reverse == 1:
        i0, g0, f0, o0, h0, c0, tanhc0 = i1, g1, f1, o1, h1, c1, tanhc1
    parts = 1
    if w_low is not None:
        parts = 2
        w_low += reverse.to(tl.int64) * (4 * H * H)
    w_hh += reverse.to(tl.int64) * (4 * H * H)
    exchange += reverse.to(tl.int64) * N * WIDTH * parts
    slot = tl.num_programs(2).to(tl.int64) * N * WIDTH * parts
    carried = carry + reverse.to(tl.int64) * N * H + n * H + u
    chains = tl.num_programs(2).to(tl.int64) * N * H

    a_i, a_f, a_g, a_o = load_four(gates + t * gates_of[0] + n * gates_of[1] + reverse * (4 * H) + u, mine, H)
    if x_peak is not None:
        scale = unscaled(unscaled(1.0, tl.load(x_peak)), tl.load(w_ih_peak))
        a_i, a_f, a_g, a_o = a_i * scale, a_f * scale, a_g * scale, a_o * scale
    if bias is not None:
        b_i, b_f, b_g, b_o = load_four(bias + reverse * (4 * H) + u, u < H, H)
        a_i, a_f, a_g, a_o = a_i + b_i, a_f + b_f, a_g + b_g, a_o + b_o

    begun = (n < 0) & (u < 0)
    if s == 0:
        c_prev = tl.zeros([ROWS, UNITS], tl.float32)
        h_prev = tl.zeros([ROWS, UNITS], tl.float32)
        if c_start is not None:
            at = reverse * c_start_of[0] + n * c_start_of[1] + u * c_start_of[2]
            c_prev += tl.load(c_start + at, mask=mine, other=0.0).to(tl.float32)
        if h_start is not None:
            at = reverse * h_start_of[0] + n * h_start_of[1] + u * h_start_of[2]
            h_prev += tl.load(h_start + at, mask=mine, other=0.0).to(tl.float32)
    else:
        c_prev = tl.load(carried, mask=mine, other=0.0)
        h_prev = tl.zeros([ROWS, UNITS], tl.float32)
        if sizes is not None:
            h_prev = tl.load(carried + chains, mask=mine, other=0.0)
            begun = tl.load(carried + 2 * chains, mask=mine, other=0.0) != 0.0
        if products is not None:
            made = products + reverse.to(tl.int64) * N * (4 * H) + n * (4 * H) + u
            p_i, p_f, p_g, p_o = load_four(made, mine, H)
        else:
            p_i, p_f, p_g, p_o = multiply_hidden(
                exchange + ((s + 1) % 2) * slot, w_hh, w_low, n, N, u0, H, ROWS, UNITS, DEEP, WIDTH, WIDEN
            )
        if w_peak is not None:
            scale = unscaled(1.0 / HIDDEN_SCALE, tl.load(w_peak))
            p_i, p_f, p_g, p_o = p_i * scale, p_f * scale, p_g * scale, p_o * scale
        a_i, a_f, a_g, a_o = a_i + p_i, a_f + p_f, a_g + p_g, a_o + p_o
    if opening is not None:
        first = when(s == 0, mine)
        if sizes is not None:
            first = mine & ~begun
        p_i, p_f, p_g, p_o = load_four(opening + reverse.to(tl.int64) * N * (4 * H) + n * (4 * H) + u, first, H)
        a_i, a_f, a_g, a_o = a_i + p_i, a_f + p_f, a_g + p_g, a_o + p_o

    valid = mine
    if sizes is not None:
        valid = mine & (tl.load(sizes + t) > n)
    i, f, g, o, c, tanhc, h, y, shown, begun = stepped(
        a_i, a_f, a_g, a_o, c_prev, h_prev, begun, valid, sizes, output.dtype.element_ty == tl.float32
    )

    dtype = output.dtype.element_ty
    tl.store(carried, c.to(dtype).to(tl.float32), mask=mine)
    if sizes is not None:
        tl.store(carried + chains, h.to(dtype).to(tl.float32), mask=mine)
        tl.store(carried + 2 * chains, begun.to(tl.float32), mask=mine)
    if w_peak is not None:
        shown *= HIDDEN_SCALE
    there = exchange + (s % 2) * slot + n * WIDTH + u
    high = shown.to(exchange.dtype.element_ty)
    tl.store(there, high, mask=mine)
    if w_low is not None:
        tl.store(there + N * WIDTH, (shown - high.to(tl.float32)).to(exchange.dtype.element_ty), mask=mine)
    save(
        i0, g0, f0, o0, h0, c0, tanhc0, output, i, g, f, o, h, c, tanhc, y, t, reverse, n, u, mine, saved_of, output_of
    )
    last = when(s == T - 1, mine)
    put(hy, reverse * hy_of[0] + n * hy_of[1] + u * hy_of[2], h, last)
    put(cy, reverse * cy_of[0] + n * cy_of[1] + u * cy_of[2], c, last)
