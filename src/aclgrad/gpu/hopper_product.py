"""Products on Hopper, tile by tile: what the kernels have in common that compute something beside a product.

A persistent grid takes one tile of a result after another. A producer warp has the bulk copy engine fill a ring of
stages with slices of both operands; two consumer warp groups multiply, 64 rows of the tile each, and run their
epilogue while the next stages are filled. A stage's barrier `ready` is signalled by the copy engine, `free` by both
consumers.

`tile_at`, `ring_barriers` and `tile_grid` serve any such product. The rest is one of half-precision operands, a tile of
128 × 256 and an epilogue of four pieces of 64 columns: `shared_memory`, `produce`, `accumulate`, `store`. `K_FIRST`
operands have the depth first, a [K, M] and b [K, N]; else they are a [M, K] and b [N, K].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from . import hopper
from .compilation import Grid
from .devices import multiprocessors
from .dialect import barrier, bulk_load, bulk_store
from .products import TILE

CONSUMER_ROWS = gl.constexpr(64)  # of a tile, for each consumer
ROWS = gl.constexpr(TILE[0])
COLUMNS = gl.constexpr(TILE[1])
TILE_K = gl.constexpr(64)  # terms of the depth in a stage: rows of 128 bytes
EPILOGUE_COLUMNS = gl.constexpr(64)  # of a tile that are finished and stored at a time
EPILOGUE_PIECES = gl.constexpr(4)
STAGES = gl.constexpr(4)
BAND = gl.constexpr(16)  # tiles of a column that are taken together, for the cache's sake
ACCUMULATOR = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16]))
START_REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K
CONSUMER_REGISTERS, PRODUCER_REGISTERS = gl.constexpr(232), gl.constexpr(24)  # where no other warps have work


@hopper.jit()
def tile_at(tile, down, across):
    """(row, column) of a tile, both counted in tiles, of which there are so many down and across."""
    first = tile // (BAND * across) * BAND
    height = min(down - first, BAND)
    inside = tile % (BAND * across)
    return first + inside % height, inside // height


@hopper.jit()
def ring_barriers(STAGES: gl.constexpr):
    """(ready, free): a barrier each for every stage of a ring that two consumers read."""
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=2)
    fence_async_shared()
    return ready, free


def tile_grid(rows: int, columns: int, device: torch.device, tile: Sequence[int] = TILE, split_k: int = 1) -> Grid:
    """A persistent grid over the tiles of a result, each of them in `split_k` parts."""
    tiles = triton.cdiv(rows, tile[0]) * triton.cdiv(columns, tile[1]) * split_k
    return min(multiprocessors(device), tiles), 1, 1


@hopper.jit()
def shared_memory(a_desc, b_desc, out_desc, K_FIRST: gl.constexpr):
    """(ring of a, ring of b, two buffers of each consumer for its results, ready, free)."""
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [STAGES * 2, CONSUMER_ROWS, TILE_K], a_desc.layout)
    if K_FIRST:
        b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES, TILE_K, COLUMNS], b_desc.layout)
    else:
        b_ring = gl.allocate_shared_memory(b_desc.dtype, [STAGES, COLUMNS, TILE_K], b_desc.layout)
    buffers = gl.allocate_shared_memory(out_desc.dtype, [4, CONSUMER_ROWS, EPILOGUE_COLUMNS], out_desc.layout)
    ready, free = ring_barriers(STAGES)
    return a_ring, b_ring, buffers, ready, free


@hopper.jit()
def produce(a_desc, b_desc, a_ring, b_ring, ready, free, M, N, K, K_FIRST: gl.constexpr):
    """The producer warp: every slice of every tile, as soon as both consumers are done with what was in its stage."""
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    slot = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = tile_at(tile, down, across)
        for k in range(0, K, TILE_K):
            stage = slot % STAGES
            full = ready.index(stage)
            mbarrier.wait(free.index(stage), ((slot // STAGES) & 1) ^ 1)
            mbarrier.expect(full, (ROWS + COLUMNS) * TILE_K * 2)
            for consumer in gl.static_range(2):
                row0 = row * ROWS + consumer * CONSUMER_ROWS
                if K_FIRST:
                    bulk_load(a_desc, [k, row0], full, a_ring.index(stage * 2 + consumer))
                else:
                    bulk_load(a_desc, [row0, k], full, a_ring.index(stage * 2 + consumer))
            if K_FIRST:
                bulk_load(b_desc, [k, column * COLUMNS], full, b_ring.index(stage))
            else:
                bulk_load(b_desc, [column * COLUMNS, k], full, b_ring.index(stage))
            slot += 1


@hopper.jit()
def accumulate(CONSUMER: gl.constexpr, a_ring, b_ring, ready, free, K, slot, K_FIRST: gl.constexpr):
    """(the sums of a consumer's rows of a tile in four pieces by columns, the next slot)."""
    sums = gl.zeros([CONSUMER_ROWS, COLUMNS], gl.float32, ACCUMULATOR)
    for k in range(0, K, TILE_K):
        stage = slot % STAGES
        mbarrier.wait(ready.index(stage), (slot // STAGES) & 1)
        if K_FIRST:
            a = a_ring.index(stage * 2 + CONSUMER).permute((1, 0))
            b = b_ring.index(stage)
        else:
            a = a_ring.index(stage * 2 + CONSUMER)
            b = b_ring.index(stage).permute((1, 0))
        sums = warpgroup_mma(a, b, sums, use_acc=k > 0, is_async=True)
        sums = warpgroup_mma_wait(num_outstanding=1, deps=(sums,))
        mbarrier.arrive(free.index((slot + STAGES - 1) % STAGES), pred=k > 0)
        slot += 1
    sums = warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
    mbarrier.arrive(free.index((slot + STAGES - 1) % STAGES))
    left, right = _left_and_right(sums, 2 * EPILOGUE_COLUMNS)
    first, second = _left_and_right(left, EPILOGUE_COLUMNS)
    third, fourth = _left_and_right(right, EPILOGUE_COLUMNS)
    return first, second, third, fourth, slot


@hopper.jit()
def _left_and_right(values, WIDTH: gl.constexpr):
    """The left and the right columns: every thread has some of both."""
    return values.reshape(CONSUMER_ROWS, 2, WIDTH).permute(0, 2, 1).split()


@hopper.jit()
def store(CONSUMER: gl.constexpr, out_desc, buffers, values, row, column, PIECE: gl.constexpr):
    """Round a piece of the columns and have it copied to `out` while the next one is computed."""
    buffer = buffers.index(CONSUMER * 2 + PIECE % 2)
    tma.store_wait(1)
    barrier()
    buffer.store(values.to(out_desc.dtype))
    fence_async_shared()
    barrier()
    bulk_store(out_desc, [row, column + PIECE * EPILOGUE_COLUMNS], buffer)


def blocks(
    shape: tuple[int, int, int], strides: Sequence[int], dtype: torch.dtype, out: torch.dtype, *, k_first: bool = False
) -> tuple[hopper.Block, hopper.Block, hopper.Block]:
    """a, b and the result of a product of M × N over K, whose rows are `strides` elements apart."""
    m, n, k = shape
    consumer, tile_k = CONSUMER_ROWS.value, TILE_K.value
    if k_first:
        a = hopper.Block((k, m), strides[0], (tile_k, consumer), dtype)
        b = hopper.Block((k, n), strides[1], (tile_k, COLUMNS.value), dtype)
    else:
        a = hopper.Block((m, k), strides[0], (consumer, tile_k), dtype)
        b = hopper.Block((n, k), strides[1], (COLUMNS.value, tile_k), dtype)
    return a, b, hopper.Block((m, n), strides[2], (consumer, EPILOGUE_COLUMNS.value), out)
