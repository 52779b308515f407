# mypy: ignore-errors
# ruff: noqa: SIM102
# Gluon compiles these functions from their source: types follow the values, and a condition that is known at compile
# time stands alone.
"""All steps of a layer's forward pass in float32 in one launch, for a large batch: pairs of programs. For Hopper.

As in `triton_forward_team`, programs stay resident, keep their part of w_hh in shared memory in two halves, and pass h
on in halves. There, a program has all of the depth and so reads all of h, which is what a step then takes. Here two
programs have the same 16 units, and each has the weights of one half of the depth: it reads half of h. Of 128 rows,
each multiplies all and finishes 64. What it has summed up for the others it sends to its partner, first, so that it
is there when the partner has summed up its own.

A program runs two streams of rows, which have nothing to do with each other: while one waits, the other multiplies. A
stream is one warp group, which multiplies and does the rest of the step, and two warps beside it. One waits until all
programs have written h and has the bulk copy engine fill a ring of tiles with it; the other tells of what was written,
since telling means waiting until that is there. What is saved for the gradient is written during the next step's
product: whoever tells would wait for it.

The loop over a product is short on purpose. Written out, its code would not stay in the instruction cache.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ..persistent.backward_tiles import LINE, put_four, wait_for
from ..persistent.forward_tiles import (
    HIDDEN_SCALE,
    fetch,
    gate_biases,
    initial,
    opened,
    over_scale,
    parts_of,
    put,
    save,
    stepped,
)
from .tile_ring import (
    COLUMNS,
    DEEP,
    HELPER_REGISTERS,
    LOADED,
    ROWS,
    STREAMS,
    SUMS,
    barriers,
    feed_tile,
    multiply,
    resident_weights,
    seen_by_copies,
    two_rings,
)

UNITS, GATES = gl.constexpr(16), gl.constexpr(COLUMNS.value)
REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K
STREAM_REGISTERS = gl.constexpr(232)
SENT, WRITTEN = gl.constexpr(0), gl.constexpr(1)  # what a stream tells
CELLS = gl.constexpr(  # a thread has two rows and four neighbouring units
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 16]
    )
)


@gluon.jit
def pair_weights(w, u0, k0, H: gl.constexpr):
    """Half of the depth of the gates of these units, in the order in which `four_gates` takes them apart."""
    row = gl.arange(0, GATES, gl.SliceLayout(1, LOADED))
    unit = row // 16 + row // 2 % 4 * 4
    gate = row // 8 % 2 * 2 + row % 2
    return resident_weights(w, (gate * H + u0 + unit) * H + k0, H // 2 // DEEP)


@gluon.jit
def four_gates(sums):
    """Sums of i, f, g, o: a thread has the four of a unit, so that nothing moves."""
    apart = gl.permute(gl.reshape(sums, [ROWS, 4, 2, 4, 2]), (0, 3, 1, 2, 4))
    even, odd = gl.split(apart)
    i, g = gl.split(even)
    f, o = gl.split(odd)
    return as_cells(i), as_cells(f), as_cells(g), as_cells(o)


@gluon.jit
def as_cells(sums):
    """One gate, in the layout of what is computed from it."""
    return gl.convert_layout(gl.reshape(sums, [ROWS, UNITS]), CELLS, assert_trivial=True)


@gluon.jit
def group_of_rows():
    """The group of this program, counted over both directions."""
    return gl.program_id(2) * gl.num_programs(1) + gl.program_id(1)


@gluon.jit
def partner():
    """The program that has the other half of the depth."""
    return gl.program_id(0) + 1 - gl.program_id(0) % 2 * 2


@gluon.jit
def mailbox(program, STREAM: gl.constexpr):
    """Which of all flags and inboxes is that of a program of this group."""
    return (group_of_rows() * gl.num_programs(0) + program) * STREAMS + STREAM


@gluon.jit
def feed(STREAM: gl.constexpr, states, ring, ready, free, counters, T, N, H: gl.constexpr, PIECE: gl.constexpr):
    """The warp that loads: of either 64 rows and every piece of the depth the low parts, then the high ones."""
    second = gl.program_id(0) % 2
    n0 = (gl.program_id(1) * STREAMS + STREAM) * (2 * ROWS)
    k0 = second * (H // 2)
    tile = 0
    for s in range(1, T):
        wait_for(counters + STREAM * LINE, s * gl.num_programs(0))
        seen_by_copies()
        high = ((s + 1) % 2 * gl.num_programs(2) + gl.program_id(2)) * 2 * N + n0
        for half in range(2):
            row = high + (second + 1 + half) % 2 * ROWS
            for piece in range(k0, k0 + H // 2, PIECE * DEEP):
                for part in gl.static_range(2):
                    for k in gl.static_range(PIECE):
                        tile = feed_tile(states, row + (1 - part) * N, piece + k * DEEP, tile, ring, ready, free)


@gluon.jit
def tell(STREAM: gl.constexpr, told, counters, flags, T):
    """The warp that tells the partner of sums, and all programs of h."""
    flag = flags + mailbox(partner(), STREAM) * LINE
    for s in range(T):
        if s > 0:
            mbarrier.wait(told.index(SENT), (s & 1) ^ 1)
            gl.atomic_add(flag, 1, sem="release")
        mbarrier.wait(told.index(WRITTEN), s & 1)
        seen_by_copies()
        gl.atomic_add(counters + STREAM * LINE, 1, sem="release")


@gluon.jit
def stream(
    STREAM: gl.constexpr, w_high, w_low, ring, ready, free, told, pointers, T, N, gates_of, h_start_of, c_start_of,
    output_of, hy_of, cy_of, saved_of, H: gl.constexpr, PIECE: gl.constexpr,
):  # fmt: skip
    """The warp group of a stream."""
    (
        exchange, w_peak, gates, x_peak, w_ih_peak, bias, opening, h_start, c_start, output, hy, cy, i0, g0, f0, o0, h0,
        c0, tanhc0, i1, g1, f1, o1, h1, c1, tanhc1, sizes, flags, inbox,
    ) = pointers  # fmt: skip
    COUNT: gl.constexpr = H // 2 // DEEP
    EACH: gl.constexpr = ROWS * UNITS
    me = gl.program_id(0)
    reverse = gl.program_id(2)
    row = gl.arange(0, ROWS, gl.SliceLayout(1, CELLS))[:, None]
    unit = gl.arange(0, UNITS, gl.SliceLayout(0, CELLS))[None, :]
    flag = flags + mailbox(me, STREAM) * LINE
    to_them = inbox + mailbox(partner(), STREAM) * (4 * EACH) + row * UNITS + unit
    to_us = inbox + mailbox(me, STREAM) * (4 * EACH) + row * UNITS + unit

    n = ((gl.program_id(1) * STREAMS + STREAM) * 2 + me % 2) * ROWS + row
    u = me // 2 * UNITS + unit
    mine = (n < N) & (u < H)
    plane = N * H
    slot = gl.num_programs(2) * plane * 2
    exchange += reverse * plane * 2 + n * H + u
    gates += reverse * (4 * H)
    if bias is not None:
        bias += reverse * (4 * H)
    if i0 is not None:
        if reverse == 1:
            i0 = i1
            g0 = g1
            f0 = f1
            o0 = o1
            h0 = h1
            c0 = c1
            tanhc0 = tanhc1
    b_i, b_f, b_g, b_o = gate_biases(bias, u, H)
    w_scale = over_scale(w_peak) / HIDDEN_SCALE
    x_scale = over_scale(x_peak) * over_scale(w_ih_peak)
    step = gl.where(reverse == 1, -1, 1)
    t = gl.where(reverse == 1, T - 1, 0)
    c = initial(c_start, c_start_of, reverse, n, u, mine)
    h = initial(h_start, h_start_of, reverse, n, u, mine)
    begun = n < 0
    i = c
    f = c
    g = c
    o = c
    tanhc = c
    y = c
    tile = 0

    for s in range(T):
        x_i, x_f, x_g, x_o, rows = fetch(gates, t, n * gates_of[1] + u, sizes, mine, gates_of[0], H)
        p_i = gl.zeros_like(c)
        p_f = p_i
        p_g = p_i
        p_o = p_i
        if s > 0:
            total = gl.zeros([ROWS, GATES], gl.float32, SUMS)
            for half in range(2):  # the partner's rows, then our own
                for first in range(0, COUNT, PIECE):
                    total, tile = multiply(total, tile, first, w_high, w_low, ring, ready, free, PIECE, PRECISE=True)
                    if (half == 0) & (first == 0):
                        save(
                            i0, g0, f0, o0, h0, c0, tanhc0, output, i, g, f, o, h, c, tanhc, y, t - step, reverse, n, u,
                            mine, saved_of, output_of,
                        )  # fmt: skip
                if half == 0:
                    p_i, p_f, p_g, p_o = four_gates(total)
                    put_four(to_them, p_i, p_f, p_g, p_o, None, EACH)
                    mbarrier.arrive(told.index(SENT))
                    total = gl.zeros([ROWS, GATES], gl.float32, SUMS)
            wait_for(flag, s)
            p_i, p_f, p_g, p_o = four_gates(total)
            p_i += gl.load(to_us, cache_modifier=".cg")
            p_f += gl.load(to_us + EACH, cache_modifier=".cg")
            p_g += gl.load(to_us + 2 * EACH, cache_modifier=".cg")
            p_o += gl.load(to_us + 3 * EACH, cache_modifier=".cg")
        a_i, a_f, a_g, a_o = opened(
            x_i * x_scale + b_i + p_i * w_scale, x_f * x_scale + b_f + p_f * w_scale,
            x_g * x_scale + b_g + p_g * w_scale, x_o * x_scale + b_o + p_o * w_scale,
            opening, s, begun, reverse, n, u, sizes, mine, N, H,
        )  # fmt: skip
        i, f, g, o, c, tanhc, h, y, shown, begun = stepped(
            a_i, a_f, a_g, a_o, c, h, begun, rows > n, sizes, ROUNDED=True
        )
        high, low = parts_of(shown, gl.float16, SCALED=True, PARTS=2)
        there = exchange + (s % 2) * slot
        gl.store(there, high, mask=mine)
        gl.store(there + plane, low, mask=mine)
        mbarrier.arrive(told.index(WRITTEN))
        t += step

    save(
        i0, g0, f0, o0, h0, c0, tanhc0, output, i, g, f, o, h, c, tanhc, y, t - step, reverse, n, u, mine, saved_of,
        output_of,
    )  # fmt: skip
    put(hy, reverse * hy_of[0] + n * hy_of[1] + u * hy_of[2], h, mine)
    put(cy, reverse * cy_of[0] + n * cy_of[1] + u * cy_of[2], c, mine)


@gluon.jit
def recur_in_pairs(
    states, exchange, w_hh, w_low, w_peak, gates, x_peak, w_ih_peak, bias, opening, h_start, c_start, output, hy, cy,
    i0, g0, f0, o0, h0, c0, tanhc0, i1, g1, f1, o1, h1, c1, tanhc1, sizes, counters, flags, inbox,
    T, N, gates_of, h_start_of, c_start_of, output_of, hy_of, cy_of, saved_of,
    H: gl.constexpr, PIECE: gl.constexpr,
):  # fmt: skip
    """Grid: slices of 16 units · 2, groups of 256 rows, directions; all resident at once. `states` are `exchange`."""
    counters += group_of_rows() * STREAMS * LINE
    u0 = gl.program_id(0) // 2 * UNITS
    k0 = gl.program_id(0) % 2 * (H // 2)
    w_at = gl.program_id(2) * (4 * H * H)
    w_high = pair_weights(w_hh + w_at, u0, k0, H)
    w_rest = pair_weights(w_low + w_at, u0, k0, H)
    ring0, ring1, ready0, ready1, free0, free1 = two_rings()
    told0 = barriers(2)
    told1 = barriers(2)
    fence_async_shared()
    # Strides are passed one by one: within a tuple it would be forgotten which are 1, and what lies side by side.
    pointers = (
        exchange, w_peak, gates, x_peak, w_ih_peak, bias, opening, h_start, c_start, output, hy, cy, i0, g0, f0, o0, h0,
        c0, tanhc0, i1, g1, f1, o1, h1, c1, tanhc1, sizes, flags, inbox,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (stream, (0, w_high, w_rest, ring0, ready0, free0, told0, pointers, T, N, gates_of, h_start_of, c_start_of,
                      output_of, hy_of, cy_of, saved_of, H, PIECE)),
            (stream, (1, w_high, w_rest, ring1, ready1, free1, told1, pointers, T, N, gates_of, h_start_of, c_start_of,
                      output_of, hy_of, cy_of, saved_of, H, PIECE)),
            (feed, (0, states, ring0, ready0, free0, counters, T, N, H, PIECE)),
            (feed, (1, states, ring1, ready1, free1, counters, T, N, H, PIECE)),
            (tell, (0, told0, counters, flags, T)),
            (tell, (1, told1, counters, flags, T)),
        ],
        [4, 1, 1, 1, 1],
        [STREAM_REGISTERS, HELPER_REGISTERS, HELPER_REGISTERS, HELPER_REGISTERS, HELPER_REGISTERS],
    )  # fmt: skip
