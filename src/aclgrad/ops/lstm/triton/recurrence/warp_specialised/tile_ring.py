# mypy: ignore-errors
# Gluon compiles these functions from their source: types follow the values.
"""A warp group that multiplies rows of the batch and the warp that feeds it: what pairs and relays in streams share.

Between them is a ring of tiles in shared memory, which the bulk copy engine fills, with two barriers for every tile: it
is ready, it is free again. Whoever multiplies takes all tiles of its ring, one after the other. Rows and weights are
in two float16 halves.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from aclgrad.gpu.dialect import bulk_load

STREAMS = gl.constexpr(2)  # of rows; while one waits, the other is multiplied
ROWS, COLUMNS = gl.constexpr(64), gl.constexpr(64)  # of a product: rows of the batch, rows of the weights
DEEP = gl.constexpr(64)  # terms of the depth in a tile: 128 bytes
RING = gl.constexpr(6)  # tiles
HELPER_REGISTERS = gl.constexpr(24)  # of a thread in a warp that feeds or tells
TILES = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))
LOADED = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
SUMS = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16]))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr = 1):
    """So many, each for so many arrivals at a time."""
    bars = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(COUNT):
        mbarrier.init(bars.index(at), count=ARRIVALS)
    return bars


@gluon.jit
def two_rings():
    """For either of two that multiply: the tiles, the barriers that say that they are ready, and that they are free."""
    ring0 = gl.allocate_shared_memory(gl.float16, [RING, ROWS, DEEP], TILES)
    ring1 = gl.allocate_shared_memory(gl.float16, [RING, ROWS, DEEP], TILES)
    ready0 = barriers(RING)
    ready1 = barriers(RING)
    free0 = barriers(RING)
    free1 = barriers(RING)
    return ring0, ring1, ready0, ready1, free0, free1


@gluon.jit
def resident_weights(source, row, COUNT: gl.constexpr):
    """Weights in shared memory: COUNT slices of the depth. `row` tells where the rows of a slice begin."""
    weights = gl.allocate_shared_memory(gl.float16, [COUNT, COLUMNS, DEEP], TILES)
    at = row[:, None] + gl.arange(0, DEEP, gl.SliceLayout(0, LOADED))[None, :]
    for first in range(COUNT):
        weights.index(first).store(gl.load(source + at + first * DEEP))
    return weights


@gluon.jit
def seen_by_copies():
    """What was written, by us or for all we know, is there for the bulk copy engine, too."""
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def feed_tile(source, row, column, tile, ring, ready, free):
    """Have the next tile of the ring filled when it is free; the number of the one after it."""
    at = tile % RING
    mbarrier.wait(free.index(at), ((tile // RING) & 1) ^ 1)
    mbarrier.expect(ready.index(at), ROWS * DEEP * 2)
    bulk_load(source, [row, column], ready.index(at), ring.index(at))
    return tile + 1


@gluon.jit
def ready_tile(tile, ring, ready):
    """A tile when it is there."""
    mbarrier.wait(ready.index(tile % RING), (tile // RING) & 1)
    return ring.index(tile % RING)


@gluon.jit
def multiply(total, tile, first, w_high, w_low, ring, ready, free, PIECE: gl.constexpr, PRECISE: gl.constexpr):
    """Add the product of PIECE tiles, as low and as high parts if precise, and as many slices of the weights.

    Matrix units cut sums off, to as many bits as the sum has by then. So sums begin anew here, and with the products of
    low parts, which are small.
    """
    if PRECISE:
        fresh = gl.zeros([ROWS, COLUMNS], gl.float32, SUMS)
        for k in gl.static_range(PIECE):
            low = ready_tile(tile + k, ring, ready)
            fresh = warpgroup_mma(low, w_high.index(first + k).permute((1, 0)), fresh, use_acc=k > 0, is_async=True)
        for k in gl.static_range(PIECE):
            high = ready_tile(tile + PIECE + k, ring, ready)
            fresh = warpgroup_mma(high, w_low.index(first + k).permute((1, 0)), fresh, is_async=True)
            fresh = warpgroup_mma_wait(PIECE, deps=[fresh])
            mbarrier.arrive(free.index((tile + k) % RING))
        tile += PIECE
        for k in gl.static_range(PIECE):
            high = ring.index((tile + k) % RING)
            fresh = warpgroup_mma(high, w_high.index(first + k).permute((1, 0)), fresh, is_async=True)
        total += warpgroup_mma_wait(0, deps=[fresh])
    else:
        for k in gl.static_range(PIECE):
            high = ready_tile(tile + k, ring, ready)
            total = warpgroup_mma(high, w_high.index(first + k).permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    for k in gl.static_range(PIECE):
        mbarrier.arrive(free.index((tile + k) % RING))
    return total, tile + PIECE
