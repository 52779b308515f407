"""A ring of tiles in shared memory between a producer warp and a consumer warp group.

The bulk copy engine fills the tiles; every tile has two barriers: it is ready, it is free again. The consumer takes all
tiles of its ring, one after the other, and multiplies them. Rows and weights are split into high and low float16.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from aclgrad.gpu.dialect import bulk_load

ROW_SETS = gl.constexpr(2)  # of a group; while one waits, the other is multiplied
TILE_ROWS, TILE_COLUMNS = gl.constexpr(64), gl.constexpr(64)  # of a product: rows of the batch, rows of the weights
TILE_K = gl.constexpr(64)  # terms of the depth in a tile: 128 bytes
RING_TILES = gl.constexpr(6)  # tiles
SINGLE_WARP_REGISTERS = gl.constexpr(24)  # of a thread in a producer or signalling warp
TILE_LAYOUT = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))
LOAD_LAYOUT = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
ACCUMULATOR = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16]))


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr = 1):
    """COUNT of them, each for so many arrivals at a time."""
    bars = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(COUNT):
        mbarrier.init(bars.index(slot), count=ARRIVALS)
    return bars


@gluon.jit
def two_rings():
    """For either of two consumers: the tiles, the barriers that say that they are ready, and that they are free."""
    ring0 = gl.allocate_shared_memory(gl.float16, [RING_TILES, TILE_ROWS, TILE_K], TILE_LAYOUT)
    ring1 = gl.allocate_shared_memory(gl.float16, [RING_TILES, TILE_ROWS, TILE_K], TILE_LAYOUT)
    ready0 = barriers(RING_TILES)
    ready1 = barriers(RING_TILES)
    free0 = barriers(RING_TILES)
    free1 = barriers(RING_TILES)
    return ring0, ring1, ready0, ready1, free0, free1


@gluon.jit
def load_weights(w_ptr, row_offsets, K_TILES: gl.constexpr):
    """Weights in shared memory: K_TILES tiles of the depth, whose rows begin at `row_offsets`."""
    weights = gl.allocate_shared_memory(gl.float16, [K_TILES, TILE_COLUMNS, TILE_K], TILE_LAYOUT)
    offsets = row_offsets[:, None] + gl.arange(0, TILE_K, gl.SliceLayout(0, LOAD_LAYOUT))[None, :]
    for tile in range(K_TILES):
        weights.index(tile).store(gl.load(w_ptr + offsets + tile * TILE_K))
    return weights


@gluon.jit
def fence_for_bulk_copies():
    """Let the bulk copy engine see all writes to global memory that this warp has made or waited for."""
    gl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def produce_tile(rows_desc, row, column, tile, ring, ready, free):
    """Have the next tile of the ring filled when it is free; returns the number of the one after it."""
    slot = tile % RING_TILES
    mbarrier.wait(free.index(slot), ((tile // RING_TILES) & 1) ^ 1)
    mbarrier.expect(ready.index(slot), TILE_ROWS * TILE_K * 2)
    bulk_load(rows_desc, [row, column], ready.index(slot), ring.index(slot))
    return tile + 1


@gluon.jit
def wait_for_tile(tile, ring, ready):
    """A tile, when it is ready."""
    mbarrier.wait(ready.index(tile % RING_TILES), (tile // RING_TILES) & 1)
    return ring.index(tile % RING_TILES)


@gluon.jit
def multiply_tiles(
    total, tile, first, w_high, w_low, ring, ready, free, TILES_PER_SUM: gl.constexpr, PRECISE: gl.constexpr
):
    """Add the product of TILES_PER_SUM tiles, of low and of high parts if precise, and as many tiles of the weights.

    Matrix units cut sums off, to as many bits as the sum has by then. So sums start from zero here, with the products
    of low parts, which are small.
    """
    if PRECISE:
        product = gl.zeros([TILE_ROWS, TILE_COLUMNS], gl.float32, ACCUMULATOR)
        for k in gl.static_range(TILES_PER_SUM):
            low = wait_for_tile(tile + k, ring, ready)
            product = warpgroup_mma(low, w_high.index(first + k).permute((1, 0)), product, use_acc=k > 0, is_async=True)
        for k in gl.static_range(TILES_PER_SUM):
            high = wait_for_tile(tile + TILES_PER_SUM + k, ring, ready)
            product = warpgroup_mma(high, w_low.index(first + k).permute((1, 0)), product, is_async=True)
            product = warpgroup_mma_wait(TILES_PER_SUM, deps=[product])
            mbarrier.arrive(free.index((tile + k) % RING_TILES))
        tile += TILES_PER_SUM
        for k in gl.static_range(TILES_PER_SUM):
            high = ring.index((tile + k) % RING_TILES)
            product = warpgroup_mma(high, w_high.index(first + k).permute((1, 0)), product, is_async=True)
        total += warpgroup_mma_wait(0, deps=[product])
    else:
        for k in gl.static_range(TILES_PER_SUM):
            high = wait_for_tile(tile + k, ring, ready)
            total = warpgroup_mma(high, w_high.index(first + k).permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    for k in gl.static_range(TILES_PER_SUM):
        mbarrier.arrive(free.index((tile + k) % RING_TILES))
    return total, tile + TILES_PER_SUM
