# ruff: noqa: SIM102
# Gluon compiles these functions from their source: types follow the values, and a condition that is known at compile
# time stands alone.
"""The forward steps of a layer in float32 in one launch, for a large batch: pairs of programs. For Hopper.

As in `persistent`, programs stay resident, keep their part of w_hh in shared memory, split, and exchange h, split.
There, a program has all of the depth and so reads all of h, which is what a step then takes. Here two programs have the
same 16 units, and each has the weights of one half of the depth: it reads half of h. Of 128 rows, each multiplies all
and finishes 64. The sums that belong to its partner's rows it sends first, so that they are there when the partner has
summed up its own.

A program runs two row sets, which have nothing to do with each other: while one waits, the other multiplies. A row set
has a consumer warp group, which multiplies and does the rest of the step, and two warps beside it. The producer waits
until all programs have written h and has the bulk copy engine fill a ring of tiles with it; the other one signals what
was written, since a signal means waiting until that is there. What is saved for the gradient is written during the next
step's product: the signal would wait for it.

The loop over a product is short on purpose. Unrolled, its code would not stay in the instruction cache.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ..backward_step import store_gates
from ..barrier import COUNTER_WORDS, wait_for
from ..forward_step_gluon import (
    H_SCALE,
    add_h0_product,
    inverse_scale,
    load_biases,
    load_gates,
    load_state,
    next_step,
    split_h,
    store,
    store_step,
)
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

UNITS, GATES = gl.constexpr(16), gl.constexpr(TILE_COLUMNS.value)
START_REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K
CONSUMER_REGISTERS = gl.constexpr(232)
SENT, WRITTEN = gl.constexpr(0), gl.constexpr(1)  # what a consumer has done, for its signalling warp
OWN_LAYOUT = gl.constexpr(  # a thread has two rows and four neighbouring units
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 16]
    )
)


@gluon.jit
def load_pair_weights(w_ptr, u0, k0, H: gl.constexpr):
    """Half of the depth of the gates of these units, in the order of `four_gates`."""
    row = gl.arange(0, GATES, gl.SliceLayout(1, LOAD_LAYOUT))
    unit = row // 16 + row // 2 % 4 * 4
    gate = row // 8 % 2 * 2 + row % 2
    return load_weights(w_ptr, (gate * H + u0 + unit) * H + k0, H // 2 // TILE_K)


@gluon.jit
def four_gates(sums):
    """Sums of i, f, g, o: a thread has the four of a unit, so that nothing moves."""
    apart = gl.permute(gl.reshape(sums, [TILE_ROWS, 4, 2, 4, 2]), (0, 3, 1, 2, 4))
    even, odd = gl.split(apart)
    i, g = gl.split(even)
    f, o = gl.split(odd)
    return as_own(i), as_own(f), as_own(g), as_own(o)


@gluon.jit
def as_own(sums):
    """One gate, in the layout of what is computed from it."""
    return gl.convert_layout(gl.reshape(sums, [TILE_ROWS, UNITS]), OWN_LAYOUT, assert_trivial=True)


@gluon.jit
def group_of_rows():
    """The group of this program, counted over both directions."""
    return gl.program_id(2) * gl.num_programs(1) + gl.program_id(1)


@gluon.jit
def partner():
    """The program that has the other half of the depth."""
    return gl.program_id(0) + 1 - gl.program_id(0) % 2 * 2


@gluon.jit
def mailbox(program, ROW_SET: gl.constexpr):
    """Which of all flags and inboxes is that of a program of this group."""
    return (group_of_rows() * gl.num_programs(0) + program) * ROW_SETS + ROW_SET


@gluon.jit
def produce(
    ROW_SET: gl.constexpr, h_buffer_desc, ring, ready, free, counters_ptr, T, N, H: gl.constexpr,
    TILES_PER_SUM: gl.constexpr,
):  # fmt: skip
    """The producer warp: of either 64 rows and every TILES_PER_SUM tiles the low parts, then the high ones."""
    second = gl.program_id(0) % 2
    n0 = (gl.program_id(1) * ROW_SETS + ROW_SET) * (2 * TILE_ROWS)
    k0 = second * (H // 2)
    tile = 0
    for s in range(1, T):
        wait_for(counters_ptr + ROW_SET * COUNTER_WORDS, s * gl.num_programs(0))
        fence_for_bulk_copies()
        high = ((s + 1) % 2 * gl.num_programs(2) + gl.program_id(2)) * 2 * N + n0
        for half in range(2):
            row = high + (second + 1 + half) % 2 * TILE_ROWS
            for k_start in range(k0, k0 + H // 2, TILES_PER_SUM * TILE_K):
                for part in gl.static_range(2):
                    for k in gl.static_range(TILES_PER_SUM):
                        tile = produce_tile(
                            h_buffer_desc, row + (1 - part) * N, k_start + k * TILE_K, tile, ring, ready, free
                        )


@gluon.jit
def signal(ROW_SET: gl.constexpr, done, counters_ptr, flags_ptr, T):
    """The warp that signals sums to the partner, and h to all programs."""
    flag_ptr = flags_ptr + mailbox(partner(), ROW_SET) * COUNTER_WORDS
    for s in range(T):
        if s > 0:
            mbarrier.wait(done.index(SENT), (s & 1) ^ 1)
            gl.atomic_add(flag_ptr, 1, sem="release")
        mbarrier.wait(done.index(WRITTEN), s & 1)
        fence_for_bulk_copies()
        gl.atomic_add(counters_ptr + ROW_SET * COUNTER_WORDS, 1, sem="release")


@gluon.jit
def consume(
    ROW_SET: gl.constexpr, w_high, w_low, ring, ready, free, done, pointers, T, N, gates_strides, h_init_strides,
    c_init_strides, output_strides, hy_strides, cy_strides, saved_strides, H: gl.constexpr, TILES_PER_SUM: gl.constexpr,
):  # fmt: skip
    """The consumer warp group of a row set."""
    (
        h_buffer_ptr, w_hh_amax_ptr, gates_ptr, x_amax_ptr, w_ih_amax_ptr, bias_ptr, h0_product_ptr, h_init_ptr,
        c_init_ptr, output_ptr, hy_ptr, cy_ptr, i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, i1_ptr,
        g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr, batch_sizes_ptr, starts_ptr, flags_ptr, inbox_ptr,
    ) = pointers  # fmt: skip
    K_TILES: gl.constexpr = H // 2 // TILE_K
    GATE_SIZE: gl.constexpr = TILE_ROWS * UNITS
    program = gl.program_id(0)
    reverse = gl.program_id(2)
    row = gl.arange(0, TILE_ROWS, gl.SliceLayout(1, OWN_LAYOUT))[:, None]
    unit = gl.arange(0, UNITS, gl.SliceLayout(0, OWN_LAYOUT))[None, :]
    flag_ptr = flags_ptr + mailbox(program, ROW_SET) * COUNTER_WORDS
    to_partner_ptr = inbox_ptr + mailbox(partner(), ROW_SET) * (4 * GATE_SIZE) + row * UNITS + unit
    from_partner_ptr = inbox_ptr + mailbox(program, ROW_SET) * (4 * GATE_SIZE) + row * UNITS + unit

    n = ((gl.program_id(1) * ROW_SETS + ROW_SET) * 2 + program % 2) * TILE_ROWS + row
    u = program // 2 * UNITS + unit
    inside = (n < N) & (u < H)
    plane = N * H
    buffer_size = gl.num_programs(2) * plane * 2
    h_buffer_ptr += reverse * plane * 2 + n * H + u
    gates_ptr += reverse * (4 * H)
    if bias_ptr is not None:
        bias_ptr += reverse * (4 * H)
    if i0_ptr is not None:
        if reverse == 1:
            i0_ptr = i1_ptr
            g0_ptr = g1_ptr
            f0_ptr = f1_ptr
            o0_ptr = o1_ptr
            h0_ptr = h1_ptr
            c0_ptr = c1_ptr
            tanhc0_ptr = tanhc1_ptr
    b_i, b_f, b_g, b_o = load_biases(bias_ptr, u, H)
    w_scale = inverse_scale(w_hh_amax_ptr) / H_SCALE
    x_scale = inverse_scale(x_amax_ptr) * inverse_scale(w_ih_amax_ptr)
    t_step = gl.where(reverse == 1, -1, 1)
    t = gl.where(reverse == 1, T - 1, 0)
    c = load_state(c_init_ptr, c_init_strides, reverse, n, u, inside)
    h = load_state(h_init_ptr, h_init_strides, reverse, n, u, inside)
    begun = n < 0
    i = c
    f = c
    g = c
    o = c
    tanhc = c
    y = c
    tile = 0

    for s in range(T):
        x_i, x_f, x_g, x_o, batch_size = load_gates(
            gates_ptr, t, n, n * gates_strides[1] + u, batch_sizes_ptr, starts_ptr, inside, gates_strides[0], H
        )
        p_i = gl.zeros_like(c)
        p_f = p_i
        p_g = p_i
        p_o = p_i
        if s > 0:
            total = gl.zeros([TILE_ROWS, GATES], gl.float32, ACCUMULATOR)
            for half in range(2):  # the partner's rows, then our own
                for first in range(0, K_TILES, TILES_PER_SUM):
                    total, tile = multiply_tiles(
                        total, tile, first, w_high, w_low, ring, ready, free, TILES_PER_SUM, PRECISE=True
                    )
                    if (half == 0) & (first == 0):
                        store_step(
                            i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, output_ptr, i, g, f, o, h, c,
                            tanhc, y, t - t_step, reverse, n, u, inside, saved_strides, output_strides, batch_sizes_ptr,
                            starts_ptr,
                        )  # fmt: skip
                if half == 0:
                    p_i, p_f, p_g, p_o = four_gates(total)
                    store_gates(to_partner_ptr, p_i, p_f, p_g, p_o, None, GATE_SIZE)
                    mbarrier.arrive(done.index(SENT))
                    total = gl.zeros([TILE_ROWS, GATES], gl.float32, ACCUMULATOR)
            wait_for(flag_ptr, s)
            p_i, p_f, p_g, p_o = four_gates(total)
            p_i += gl.load(from_partner_ptr, cache_modifier=".cg")
            p_f += gl.load(from_partner_ptr + GATE_SIZE, cache_modifier=".cg")
            p_g += gl.load(from_partner_ptr + 2 * GATE_SIZE, cache_modifier=".cg")
            p_o += gl.load(from_partner_ptr + 3 * GATE_SIZE, cache_modifier=".cg")
        a_i, a_f, a_g, a_o = add_h0_product(
            x_i * x_scale + b_i + p_i * w_scale, x_f * x_scale + b_f + p_f * w_scale,
            x_g * x_scale + b_g + p_g * w_scale, x_o * x_scale + b_o + p_o * w_scale, h0_product_ptr, s, begun, reverse,
            n, u, batch_sizes_ptr, inside, N, H,
        )  # fmt: skip
        i, f, g, o, c, tanhc, h, y, h_next, begun = next_step(
            a_i, a_f, a_g, a_o, c, h, begun, batch_size > n, batch_sizes_ptr, ROUNDED=True
        )
        high, low = split_h(h_next, gl.float16, SCALED=True, SPLIT=2)
        h_next_ptr = h_buffer_ptr + (s % 2) * buffer_size
        gl.store(h_next_ptr, high, mask=inside)
        gl.store(h_next_ptr + plane, low, mask=inside)
        mbarrier.arrive(done.index(WRITTEN))
        t += t_step

    store_step(
        i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, output_ptr, i, g, f, o, h, c, tanhc, y, t - t_step,
        reverse, n, u, inside, saved_strides, output_strides, batch_sizes_ptr, starts_ptr,
    )  # fmt: skip
    store(hy_ptr, reverse * hy_strides[0] + n * hy_strides[1] + u * hy_strides[2], h, inside)
    store(cy_ptr, reverse * cy_strides[0] + n * cy_strides[1] + u * cy_strides[2], c, inside)


@gluon.jit
def warp_specialised_forward(
    h_buffer_desc, h_buffer_ptr, w_hh_ptr, w_hh_low_ptr, w_hh_amax_ptr, gates_ptr, x_amax_ptr, w_ih_amax_ptr, bias_ptr,
    h0_product_ptr, h_init_ptr, c_init_ptr, output_ptr, hy_ptr, cy_ptr, i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr,
    tanhc0_ptr, i1_ptr, g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr, batch_sizes_ptr, starts_ptr, counters_ptr,
    flags_ptr, inbox_ptr, T, N, gates_strides, h_init_strides, c_init_strides, output_strides, hy_strides, cy_strides,
    saved_strides, H: gl.constexpr, TILES_PER_SUM: gl.constexpr,
):  # fmt: skip
    """Grid: slices of 16 units · 2, groups of 256 rows, directions; all resident at once."""
    counters_ptr += group_of_rows() * ROW_SETS * COUNTER_WORDS
    u0 = gl.program_id(0) // 2 * UNITS
    k0 = gl.program_id(0) % 2 * (H // 2)
    w_offset = gl.program_id(2) * (4 * H * H)
    w_high = load_pair_weights(w_hh_ptr + w_offset, u0, k0, H)
    w_low = load_pair_weights(w_hh_low_ptr + w_offset, u0, k0, H)
    ring0, ring1, ready0, ready1, free0, free1 = two_rings()
    done0 = barriers(2)
    done1 = barriers(2)
    fence_async_shared()
    # Strides are passed one by one: within a tuple it would be forgotten which are 1, and what lies side by side.
    pointers = (
        h_buffer_ptr, w_hh_amax_ptr, gates_ptr, x_amax_ptr, w_ih_amax_ptr, bias_ptr, h0_product_ptr, h_init_ptr,
        c_init_ptr, output_ptr, hy_ptr, cy_ptr, i0_ptr, g0_ptr, f0_ptr, o0_ptr, h0_ptr, c0_ptr, tanhc0_ptr, i1_ptr,
        g1_ptr, f1_ptr, o1_ptr, h1_ptr, c1_ptr, tanhc1_ptr, batch_sizes_ptr, starts_ptr, flags_ptr, inbox_ptr,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (consume, (0, w_high, w_low, ring0, ready0, free0, done0, pointers, T, N, gates_strides, h_init_strides,
                       c_init_strides, output_strides, hy_strides, cy_strides, saved_strides, H, TILES_PER_SUM)),
            (consume, (1, w_high, w_low, ring1, ready1, free1, done1, pointers, T, N, gates_strides, h_init_strides,
                       c_init_strides, output_strides, hy_strides, cy_strides, saved_strides, H, TILES_PER_SUM)),
            (produce, (0, h_buffer_desc, ring0, ready0, free0, counters_ptr, T, N, H, TILES_PER_SUM)),
            (produce, (1, h_buffer_desc, ring1, ready1, free1, counters_ptr, T, N, H, TILES_PER_SUM)),
            (signal, (0, done0, counters_ptr, flags_ptr, T)),
            (signal, (1, done1, counters_ptr, flags_ptr, T)),
        ],
        [4, 1, 1, 1, 1],
        [CONSUMER_REGISTERS, SINGLE_WARP_REGISTERS, SINGLE_WARP_REGISTERS, SINGLE_WARP_REGISTERS,
         SINGLE_WARP_REGISTERS],
    )  # fmt: skip
