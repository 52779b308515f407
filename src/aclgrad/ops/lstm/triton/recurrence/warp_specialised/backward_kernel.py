# ruff: noqa: ARG001
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and parameters
# stand in the order that all recurrences have in common.
"""Row owners whose two jobs run side by side in warps of their own, for a large batch. For Hopper.

The jobs are those of `row_owner`: owners of rows compute their gate gradients and publish them split, multipliers
publish the products with their part of w_hh, owners add these up. There, all of a program does one after the other, and
nobody multiplies while rows are published. Here the rows of a group are two row sets, which have nothing to do with
each other, and a program has a warp group that owns rows of both and two consumer warp groups that multiply, each half
of a row set's rows, one row set after the other: while the rows of one are published, the other's are multiplied.

Beside them are single warps. Two are producers: they wait until all rows of a row set have been published and have the
bulk copy engine fill a ring of tiles with them. Two, one for a row set, signal the other programs what was written and
wait until all have signalled, since either takes its time.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ..backward_step import place_of
from ..barrier import wait_for
from .backward_owner import own_rows
from .row_sets import MULTIPLIED, PUBLISHED, counter_of_set, rows_of_set, set_number
from .tile_ring import (
    ACCUMULATOR,
    LOAD_LAYOUT,
    ROW_SETS,
    SINGLE_WARP_REGISTERS,
    TILE_COLUMNS,
    TILE_K,
    TILE_ROWS,
    barriers,
    fence_for_bulk_copies,
    load_weights,
    multiply_tiles,
    produce_tile,
    two_rings,
)

UNITS = gl.constexpr(TILE_COLUMNS.value)
CONSUMERS = gl.constexpr(2)  # each has rows of every row set, or it would run ahead of the others
START_REGISTERS = 128  # of a thread at the start, when 16 warps share 64 K
CONSUMER_REGISTERS = gl.constexpr(120)  # whoever owns rows has what is left, 248
PRODUCT_LAYOUT = gl.constexpr(  # a thread has two rows and four neighbouring units, four times
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0], [0, 16], [0, 32]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [],
        [64, 64],
    )
)  # fmt: skip


@gluon.jit
def load_unit_weights(w_ptr, u0, K_TILES: gl.constexpr, STRIDE: gl.constexpr):
    """The high or the low part of the program's w_hh, its units in the order of `four_units_a_thread`."""
    row = gl.arange(0, UNITS, gl.SliceLayout(1, LOAD_LAYOUT))
    unit = row // 16 * 16 + row // 2 % 4 * 4 + row // 8 % 2 * 2 + row % 2
    return load_weights(w_ptr, (u0 + unit) * STRIDE, K_TILES)


@gluon.jit
def four_units_a_thread(sums):
    """Sums [rows, units] with four neighbouring units in a thread, so that nothing moves."""
    apart = gl.permute(gl.reshape(sums, [TILE_ROWS, 4, 2, 4, 2]), (0, 1, 3, 2, 4))
    return gl.convert_layout(gl.reshape(apart, [TILE_ROWS, UNITS]), PRODUCT_LAYOUT, assert_trivial=True)


@gluon.jit
def produce(
    CONSUMER: gl.constexpr, delta_high_desc, delta_low_desc, ring, ready, free, starts_ptr, counters_ptr, T, N,
    delta_strides, H: gl.constexpr, ROWS: gl.constexpr, ROWS_OWNED: gl.constexpr, SPLIT_K: gl.constexpr,
    TILES_PER_SUM: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """The producer warp of a consumer: of TILES_PER_SUM tiles of the depth the low parts, then the high ones."""
    DEPTH: gl.constexpr = 4 * H // SPLIT_K
    tile = 0
    for s in range(T):
        t = T - 1 - s
        column0 = t * (delta_strides[0] % delta_strides[1]) + gl.program_id(0) % SPLIT_K * DEPTH
        for row_set in range(ROW_SETS):
            n0, count = rows_of_set(row_set, N, ROWS)
            row0 = place_of(t, starts_ptr).to(gl.int32) * (delta_strides[0] // delta_strides[1]) + n0
            wait_for(counter_of_set(counters_ptr, row_set, PUBLISHED), (s + 1) * gl.cdiv(count, ROWS_OWNED))
            fence_for_bulk_copies()
            for row in range(row0 + CONSUMER * TILE_ROWS, row0 + count, CONSUMERS * TILE_ROWS):
                for column in range(column0, column0 + DEPTH, TILES_PER_SUM * TILE_K):
                    if PRECISE:
                        for k in gl.static_range(TILES_PER_SUM):
                            tile = produce_tile(delta_low_desc, row, column + k * TILE_K, tile, ring, ready, free)
                    for k in gl.static_range(TILES_PER_SUM):
                        tile = produce_tile(delta_high_desc, row, column + k * TILE_K, tile, ring, ready, free)


@gluon.jit
def consume(
    CONSUMER: gl.constexpr, w_high, w_low, ring, ready, free, multiplied, partial_ptr, T, N, H: gl.constexpr,
    ROWS: gl.constexpr, SPLIT_K: gl.constexpr, TILES_PER_SUM: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """A consumer warp group: multiplies every second tile of rows."""
    K_TILES: gl.constexpr = 4 * H // SPLIT_K // TILE_K
    program = gl.program_id(0)
    row = gl.arange(0, TILE_ROWS, gl.SliceLayout(1, PRODUCT_LAYOUT))[:, None]
    unit = gl.arange(0, UNITS, gl.SliceLayout(0, PRODUCT_LAYOUT))[None, :]
    partial_ptr += set_number(0).to(gl.int64) * (SPLIT_K * ROWS * H)
    sent_ptr = partial_ptr + (program % SPLIT_K * ROWS + row) * H + program // SPLIT_K * UNITS + unit
    tile = 0
    for _ in range(T):
        for row_set in range(ROW_SETS):
            _, count = rows_of_set(row_set, N, ROWS)
            for n in range(CONSUMER * TILE_ROWS, count, CONSUMERS * TILE_ROWS):
                total = gl.zeros([TILE_ROWS, UNITS], gl.float32, ACCUMULATOR)
                for first in range(0, K_TILES, TILES_PER_SUM):
                    total, tile = multiply_tiles(
                        total, tile, first, w_high, w_low, ring, ready, free, TILES_PER_SUM, PRECISE
                    )
                gl.store(
                    sent_ptr + (row_set * SPLIT_K * ROWS + n) * H, four_units_a_thread(total), mask=row < count - n
                )
            mbarrier.arrive(multiplied.index(row_set))


@gluon.jit
def signal(
    ROW_SET: gl.constexpr, published, multiplied, all_multiplied, counters_ptr, T, N, ROWS: gl.constexpr,
    ROWS_OWNED: gl.constexpr,
):  # fmt: skip
    """The warp that signals gate gradients, if the program has any, and products, and waits for those of all."""
    _, count = rows_of_set(ROW_SET, N, ROWS)
    counter = counter_of_set(counters_ptr, ROW_SET, MULTIPLIED)
    for s in range(T):
        mbarrier.wait(published.index(ROW_SET), s & 1)
        if gl.program_id(0) * ROWS_OWNED < count:
            fence_for_bulk_copies()
            gl.atomic_add(counter_of_set(counters_ptr, ROW_SET, PUBLISHED), 1, sem="release")
        mbarrier.wait(multiplied.index(ROW_SET), s & 1)
        gl.atomic_add(counter, 1, sem="release")
        wait_for(counter, (s + 1) * gl.num_programs(0))
        mbarrier.arrive(all_multiplied.index(ROW_SET))


@gluon.jit
def warp_specialised_backward(
    delta_high_desc, delta_low_desc, delta_high_ptr, w_hh_split_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr,
    c0_ptr, i1_ptr, f1_ptr, g1_ptr, o1_ptr, tanhc1_ptr, c1_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr, dh_prev_ptr,
    dc_prev_ptr, batch_sizes_ptr, starts_ptr, delta_low_ptr, bias_sums_ptr, partial_ptr, row_amax_ptr, w_hh_amax_ptr,
    counters_ptr, T, N, saved_strides, c_init_strides, dy_strides, dh_strides, dc_strides, dh_prev_strides,
    dc_prev_strides, delta_strides, H: gl.constexpr, ROW_WIDTH: gl.constexpr, ROWS: gl.constexpr,
    ROWS_OWNED: gl.constexpr, SPLIT_K: gl.constexpr, TILES_PER_SUM: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Grid: slices of 64 units · SPLIT_K, groups of 2 · ROWS rows; all resident at once. ROW_WIDTH ≥ H is a power of 2.

    `delta_high_desc` and `delta_low_desc` are `delta_high` and `delta_low` for the bulk copy engine, `w_hh_split` is
    [H, 8H], `partial` [groups, 2, SPLIT_K, ROWS, H] the products of a step. There is one direction: the operands of the
    other are not used.
    """
    K_TILES: gl.constexpr = 4 * H // SPLIT_K // TILE_K
    w_hh_split_ptr += gl.program_id(0) % SPLIT_K * (K_TILES * TILE_K)
    u0 = gl.program_id(0) // SPLIT_K * UNITS
    w_high = load_unit_weights(w_hh_split_ptr, u0, K_TILES, 8 * H)
    w_low = w_high
    if PRECISE:
        w_low = load_unit_weights(w_hh_split_ptr + 4 * H, u0, K_TILES, 8 * H)
    ring0, ring1, ready0, ready1, free0, free1 = two_rings()
    published = barriers(ROW_SETS)
    multiplied = barriers(ROW_SETS, CONSUMERS)
    all_multiplied = barriers(ROW_SETS)
    fence_async_shared()
    # Strides are passed one by one: within a tuple it would be forgotten which are 1, and what lies side by side.
    pointers = (
        delta_high_ptr, i0_ptr, f0_ptr, g0_ptr, o0_ptr, tanhc0_ptr, c0_ptr, c_init_ptr, dy_ptr, dh_ptr, dc_ptr,
        dh_prev_ptr, dc_prev_ptr, batch_sizes_ptr, starts_ptr, delta_low_ptr, bias_sums_ptr, partial_ptr, row_amax_ptr,
        w_hh_amax_ptr,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (own_rows, (published, all_multiplied, pointers, T, N, saved_strides, c_init_strides, dy_strides,
                        dh_strides, dc_strides, dh_prev_strides, dc_prev_strides, delta_strides, H, ROW_WIDTH, ROWS,
                        ROWS_OWNED, SPLIT_K, PRECISE)),
            (consume, (0, w_high, w_low, ring0, ready0, free0, multiplied, partial_ptr, T, N, H, ROWS, SPLIT_K,
                       TILES_PER_SUM, PRECISE)),
            (consume, (1, w_high, w_low, ring1, ready1, free1, multiplied, partial_ptr, T, N, H, ROWS, SPLIT_K,
                       TILES_PER_SUM, PRECISE)),
            (produce, (0, delta_high_desc, delta_low_desc, ring0, ready0, free0, starts_ptr, counters_ptr, T, N,
                       delta_strides, H, ROWS, ROWS_OWNED, SPLIT_K, TILES_PER_SUM, PRECISE)),
            (produce, (1, delta_high_desc, delta_low_desc, ring1, ready1, free1, starts_ptr, counters_ptr, T, N,
                       delta_strides, H, ROWS, ROWS_OWNED, SPLIT_K, TILES_PER_SUM, PRECISE)),
            (signal, (0, published, multiplied, all_multiplied, counters_ptr, T, N, ROWS, ROWS_OWNED)),
            (signal, (1, published, multiplied, all_multiplied, counters_ptr, T, N, ROWS, ROWS_OWNED)),
        ],
        [4, 4, 1, 1, 1, 1],
        [CONSUMER_REGISTERS, CONSUMER_REGISTERS, SINGLE_WARP_REGISTERS, SINGLE_WARP_REGISTERS, SINGLE_WARP_REGISTERS,
         SINGLE_WARP_REGISTERS],
    )  # fmt: skip
