# mypy: ignore-errors
# ruff: noqa: RUF005, ARG001
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and parameters
# stand in the order that all recurrences have in common.
"""A relay whose programs do their jobs side by side, for a large batch. For Hopper.

The jobs are those of `triton_relay`: owners of rows compute their gate gradients and pass on their halves, multipliers
pass on the products with their part of w_hh, owners add these up. There, all of a program does one after the other, and
nobody multiplies while rows are passed on. Here the rows are two streams, which have nothing to do with each other, and
a program has a warp group that owns rows of both and two warp groups that multiply, each half of a stream's rows, one
stream after the other: while one stream's rows are passed on, the other's are multiplied.

Beside them are single warps. Two feed the multipliers: they wait until all rows of a stream have been passed on and
have the bulk copy engine fill a ring of tiles with them. Two, one for a stream, tell the other programs of what was
written and wait until all have told, since either takes its time.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ..persistent.backward_tiles import LINE, put_state, replaced, state, wait_for
from ..row_owner.rows import fetch_row, gathered, pass_on, set_aside
from .tile_ring import (
    COLUMNS,
    DEEP,
    HELPER_REGISTERS,
    LOADED,
    STREAMS,
    SUMS,
    barriers,
    feed_tile,
    multiply,
    resident_weights,
    seen_by_copies,
    two_rings,
)
from .tile_ring import ROWS as BLOCK

PASSED, MULTIPLIED = gl.constexpr(0), gl.constexpr(1)  # what programs tell each other
UNITS = gl.constexpr(COLUMNS.value)
MULTIPLIERS = gl.constexpr(2)  # each has rows of every stream, or it would run ahead of the others
REGISTERS = 128  # of a thread at the start, when 16 warps share 64 K
MULTIPLIER_REGISTERS = gl.constexpr(120)  # whoever owns rows has what is left, 248
SENT = gl.constexpr(  # a thread has two rows and four neighbouring units, four times
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [],
        [64, 64],
    )
)  # fmt: skip


@gluon.jit
def relay_weights(source, u0, COUNT: gl.constexpr, STRIDE: gl.constexpr):
    """One half of this program's part of w_hh, its units in the order in which `in_fours` has them."""
    row = gl.arange(0, UNITS, gl.SliceLayout(1, LOADED))
    unit = row // 16 * 16 + row // 2 % 4 * 4 + row // 8 % 2 * 2 + row % 2
    return resident_weights(source, (u0 + unit) * STRIDE, COUNT)


@gluon.jit
def in_fours(sums):
    """Sums [rows, units] with four neighbouring units in a thread, so that nothing moves."""
    apart = gl.permute(gl.reshape(sums, [BLOCK, 4, 2, 4, 2]), (0, 1, 3, 2, 4))
    return gl.convert_layout(gl.reshape(apart, [BLOCK, UNITS]), SENT, assert_trivial=True)


@gluon.jit
def number_of(stream):
    """Which of the streams of all groups this one is."""
    return gl.program_id(1) * STREAMS + stream


@gluon.jit
def rows_of(stream, N, ROWS: gl.constexpr):
    """The first row of a stream, and how many it has."""
    n0 = number_of(stream) * ROWS
    return n0, gl.minimum(N - n0, ROWS)


@gluon.jit
def counter_of(counters, stream, WHAT: gl.constexpr):
    """Of what the programs of a stream tell each other."""
    return counters + (number_of(stream) * 2 + WHAT) * LINE


@gluon.jit
def feed(
    WHICH: gl.constexpr, rows_high, rows_low, ring, ready, free, counters, T, N, delta_of, H: gl.constexpr,
    ROWS: gl.constexpr, OWN: gl.constexpr, PARTS: gl.constexpr, PIECE: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """The warp that loads for a multiplier: of a piece of the depth the low parts, then the high ones."""
    DEPTH: gl.constexpr = 4 * H // PARTS
    tile = 0
    for s in range(T):
        t = T - 1 - s
        column0 = t * (delta_of[0] % delta_of[1]) + gl.program_id(0) % PARTS * DEPTH
        for stream in range(STREAMS):
            n0, count = rows_of(stream, N, ROWS)
            row0 = t * (delta_of[0] // delta_of[1]) + n0
            wait_for(counter_of(counters, stream, PASSED), (s + 1) * gl.cdiv(count, OWN))
            seen_by_copies()
            for row in range(row0 + WHICH * BLOCK, row0 + count, MULTIPLIERS * BLOCK):
                for column in range(column0, column0 + DEPTH, PIECE * DEEP):
                    if PRECISE:
                        for k in gl.static_range(PIECE):
                            tile = feed_tile(rows_low, row, column + k * DEEP, tile, ring, ready, free)
                    for k in gl.static_range(PIECE):
                        tile = feed_tile(rows_high, row, column + k * DEEP, tile, ring, ready, free)


@gluon.jit
def multiply_rows(WHICH: gl.constexpr, w_high, w_low, ring, ready, free, multiplied, partial, T, N, H: gl.constexpr,
                  ROWS: gl.constexpr, PARTS: gl.constexpr, PIECE: gl.constexpr, PRECISE: gl.constexpr):  # fmt: skip
    """A warp group that multiplies every second block of rows."""
    COUNT: gl.constexpr = 4 * H // PARTS // DEEP
    me = gl.program_id(0)
    row = gl.arange(0, BLOCK, gl.SliceLayout(1, SENT))[:, None]
    unit = gl.arange(0, UNITS, gl.SliceLayout(0, SENT))[None, :]
    partial += number_of(0).to(gl.int64) * (PARTS * ROWS * H)
    sent = partial + (me % PARTS * ROWS + row) * H + me // PARTS * UNITS + unit
    tile = 0
    for _ in range(T):
        for stream in range(STREAMS):
            _, count = rows_of(stream, N, ROWS)
            for n in range(WHICH * BLOCK, count, MULTIPLIERS * BLOCK):
                total = gl.zeros([BLOCK, UNITS], gl.float32, SUMS)
                for first in range(0, COUNT, PIECE):
                    total, tile = multiply(total, tile, first, w_high, w_low, ring, ready, free, PIECE, PRECISE)
                gl.store(sent + (stream * PARTS * ROWS + n) * H, in_fours(total), mask=row < count - n)
            mbarrier.arrive(multiplied.index(stream))


@gluon.jit
def tell(STREAM: gl.constexpr, passed, multiplied, met, counters, T, N, ROWS: gl.constexpr, OWN: gl.constexpr):
    """The warp that tells all programs of gate gradients, if this one has any, and of products, and hears of theirs."""
    _, count = rows_of(STREAM, N, ROWS)
    counter = counter_of(counters, STREAM, MULTIPLIED)
    for s in range(T):
        mbarrier.wait(passed.index(STREAM), s & 1)
        if gl.program_id(0) * OWN < count:
            seen_by_copies()
            gl.atomic_add(counter_of(counters, STREAM, PASSED), 1, sem="release")
        mbarrier.wait(multiplied.index(STREAM), s & 1)
        gl.atomic_add(counter, 1, sem="release")
        wait_for(counter, (s + 1) * gl.num_programs(0))
        mbarrier.arrive(met.index(STREAM))


@gluon.jit
def own_rows(
    passed, met, pointers, T, N, saved_of, start_of, dy_of, dh_of, dc_of, dh_prev_of, dc_prev_of, delta_of,
    H: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr, OWN: gl.constexpr, PARTS: gl.constexpr,
    PRECISE: gl.constexpr,
):  # fmt: skip
    """The warp group that owns OWN rows of either stream. It has one row's activations ahead."""
    (
        delta_high, i, f, g, o, tanhc, c, start, dy, dh, dc, dh_prev, dc_prev, sizes, delta_low, sums, partial, peaks,
        w_peak,
    ) = pointers  # fmt: skip
    each: gl.constexpr = min(4, WIDTH // 128 if WIDTH > 128 else 1)
    line: gl.constexpr = gl.BlockedLayout([each], [32], [4], [0])
    me = gl.program_id(0)
    saved = (i, f, g, o, tanhc, c)
    of_weights = gl.load(w_peak)
    u = gl.arange(0, WIDTH, line)
    partial += number_of(0).to(gl.int64) * (PARTS * ROWS * H)
    to_sums = sums + (gl.program_id(1) * gl.num_programs(0) + me) * (4 * H) + u
    dhs = ()
    dcs = ()
    scales = ()
    for k in gl.static_range(STREAMS * OWN):
        n, exists = owned(k, N, ROWS, OWN)
        dhs = dhs + (gl.zeros([WIDTH], gl.float32, line),)
        dcs = dcs + (state(dc, dc_of, 0, n, u, (u < H) & exists),)
        scales = scales + (of_weights,)
    n, exists = owned(0, N, ROWS, OWN)
    ahead = fetch_row(saved, dy, T - 1, n, u, (u < H) & exists, saved_of, dy_of)
    sum_i = gl.zeros([WIDTH], gl.float32, line)
    sum_f = gl.zeros([WIDTH], gl.float32, line)
    sum_g = gl.zeros([WIDTH], gl.float32, line)
    sum_o = gl.zeros([WIDTH], gl.float32, line)

    for s in range(T):
        t = T - 1 - s
        now = t.to(gl.int64) * delta_of[0]
        for k in gl.static_range(STREAMS * OWN):
            n, exists = owned(k, N, ROWS, OWN)
            row = ahead
            if k % OWN < OWN - 1:
                ahead = fetch_after(k, saved, dy, t, u, N, saved_of, dy_of, H, ROWS, OWN)
            if s > 0:
                if k % OWN == 0:
                    mbarrier.wait(met.index(k // OWN), (s & 1) ^ 1)
                gradient = received(k, partial, scales[k], of_weights, u, exists, H, ROWS, OWN, PARTS)
                if sizes is not None:
                    gradient = gl.where(gl.load(sizes + t + 1) > n, gradient, dhs[k])
            else:
                gradient = state(dh, dh_of, 0, n, u, (u < H) & exists)
            if sizes is not None:
                dhs = replaced(dhs, k, gradient)
            di, df, dg, do, dc_new, largest = pass_on(
                gradient, dcs[k], row, start, start_of, sizes, delta_high, delta_low, peaks, now, delta_of[1], t, n, u,
                exists, H, PRECISE,
            )  # fmt: skip
            if k % OWN == OWN - 1:
                mbarrier.arrive(passed.index(k // OWN))
                ahead = fetch_after(k, saved, dy, t, u, N, saved_of, dy_of, H, ROWS, OWN)
            dcs = replaced(dcs, k, dc_new)
            scales = replaced(scales, k, largest)
            sum_i += di
            sum_f += df
            sum_g += dg
            sum_o += do
        sum_i, sum_f, sum_g, sum_o = set_aside(to_sums, sum_i, sum_f, sum_g, sum_o, s, T, u < H, H)

    for k in gl.static_range(STREAMS * OWN):
        n, exists = owned(k, N, ROWS, OWN)
        if k % OWN == 0:
            mbarrier.wait(met.index(k // OWN), (T & 1) ^ 1)
        gradient = received(k, partial, scales[k], of_weights, u, exists, H, ROWS, OWN, PARTS)
        if sizes is not None:
            gradient = gl.where(gl.load(sizes) > n, gradient, dhs[k])
        put_state(dh_prev, dh_prev_of, 0, n, u, (u < H) & exists, gradient)
        put_state(dc_prev, dc_prev_of, 0, n, u, (u < H) & exists, dcs[k])


@gluon.jit
def owned(K: gl.constexpr, N, ROWS: gl.constexpr, OWN: gl.constexpr):
    """The row that is the K-th of an owner, and whether it exists."""
    n0, count = rows_of(K // OWN, N, ROWS)
    own = gl.program_id(0) * OWN + K % OWN
    return n0 + own, own < count


@gluon.jit
def fetch_after(K: gl.constexpr, saved, dy, t, u, N, saved_of, dy_of, H: gl.constexpr, ROWS: gl.constexpr,
                OWN: gl.constexpr):  # fmt: skip
    """What comes after the K-th row: the next one, or the first one at the step before, if there is one."""
    if K + 1 == STREAMS * OWN:
        t = gl.maximum(t - 1, 0)
    n, exists = owned((K + 1) % (STREAMS * OWN), N, ROWS, OWN)
    return fetch_row(saved, dy, t, n, u, (u < H) & exists, saved_of, dy_of)


@gluon.jit
def received(K: gl.constexpr, partial, scale, of_weights, u, exists, H: gl.constexpr, ROWS: gl.constexpr,
             OWN: gl.constexpr, PARTS: gl.constexpr):  # fmt: skip
    """The products of that row, added up."""
    own = gl.program_id(0) * OWN + K % OWN
    return gathered(
        partial + K // OWN * (PARTS * ROWS * H), own, u, (u < H) & exists, scale, of_weights, H, ROWS, PARTS
    )


@gluon.jit
def relay_in_streams(
    rows_high, rows_low, delta_high, weights, i, f, g, o, tanhc, c, i1, f1, g1, o1, tanhc1, c1, start, dy, dh, dc,
    dh_prev, dc_prev, sizes, delta_low, sums, partial, peaks, w_peak, counters, T, N, saved_of, start_of, dy_of, dh_of,
    dc_of, dh_prev_of, dc_prev_of, delta_of, H: gl.constexpr, WIDTH: gl.constexpr, ROWS: gl.constexpr,
    OWN: gl.constexpr, PARTS: gl.constexpr, PIECE: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices of 64 units · PARTS, groups of 2 · ROWS rows; all resident at once. WIDTH ≥ H is a power of 2.

    `rows_high` and `rows_low` are `delta_high` and `delta_low` for the bulk copy engine, `weights` [H, 8H] the halves
    of w_hh, `partial` [groups, 2, PARTS, ROWS, H] the products of a step. There is one direction: what would be of the
    other is not used.
    """
    COUNT: gl.constexpr = 4 * H // PARTS // DEEP
    weights += gl.program_id(0) % PARTS * (COUNT * DEEP)
    u0 = gl.program_id(0) // PARTS * UNITS
    w_high = relay_weights(weights, u0, COUNT, 8 * H)
    w_low = w_high
    if PRECISE:
        w_low = relay_weights(weights + 4 * H, u0, COUNT, 8 * H)
    ring0, ring1, ready0, ready1, free0, free1 = two_rings()
    passed = barriers(STREAMS)
    multiplied = barriers(STREAMS, MULTIPLIERS)
    met = barriers(STREAMS)
    fence_async_shared()
    # Strides are passed one by one: within a tuple it would be forgotten which are 1, and what lies side by side.
    pointers = (
        delta_high, i, f, g, o, tanhc, c, start, dy, dh, dc, dh_prev, dc_prev, sizes, delta_low, sums, partial, peaks,
        w_peak,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (own_rows, (passed, met, pointers, T, N, saved_of, start_of, dy_of, dh_of, dc_of, dh_prev_of, dc_prev_of,
                        delta_of, H, WIDTH, ROWS, OWN, PARTS, PRECISE)),
            (multiply_rows, (0, w_high, w_low, ring0, ready0, free0, multiplied, partial, T, N, H, ROWS, PARTS, PIECE,
                             PRECISE)),
            (multiply_rows, (1, w_high, w_low, ring1, ready1, free1, multiplied, partial, T, N, H, ROWS, PARTS, PIECE,
                             PRECISE)),
            (feed, (0, rows_high, rows_low, ring0, ready0, free0, counters, T, N, delta_of, H, ROWS, OWN, PARTS, PIECE,
                    PRECISE)),
            (feed, (1, rows_high, rows_low, ring1, ready1, free1, counters, T, N, delta_of, H, ROWS, OWN, PARTS, PIECE,
                    PRECISE)),
            (tell, (0, passed, multiplied, met, counters, T, N, ROWS, OWN)),
            (tell, (1, passed, multiplied, met, counters, T, N, ROWS, OWN)),
        ],
        [4, 4, 1, 1, 1, 1],
        [MULTIPLIER_REGISTERS, MULTIPLIER_REGISTERS, HELPER_REGISTERS, HELPER_REGISTERS, HELPER_REGISTERS,
         HELPER_REGISTERS],
    )  # fmt: skip
