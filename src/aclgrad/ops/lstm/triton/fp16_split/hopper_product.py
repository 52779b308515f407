"""Large float32 products of split matrices, in one launch. For Hopper.

A persistent grid takes one tile of 128 × 128 after another. A producer warp has the bulk copy engine fill a ring of
tiles of the high and low parts of both operands; two consumer warp groups multiply, 64 rows of the tile each: high·low,
low·high and high·high over BLOCK_K terms, added to the total with rounding, because matrix units cut sums off. A
smaller BLOCK_K is for products that have to be finer. A tile may hold one part of the depth (split-K), so that all of
the device has work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from aclgrad.gpu import hopper
from aclgrad.gpu.dialect import bulk_load
from aclgrad.gpu.launch import compiled, multiprocessors

CONSUMER_ROWS = gl.constexpr(64)  # of a tile, for each warp group
ROWS = gl.constexpr(128)
COLUMNS = gl.constexpr(128)
TILE_K, FINE_TILE_K = 64, 32  # terms of the depth in a tile of a ring
RING_K = gl.constexpr(192)  # terms in all stages together
BAND = gl.constexpr(16)  # tiles of a column that are taken together, for the cache's sake
ACCUMULATOR = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]))
CONSUMER_REGISTERS, PRODUCER_REGISTERS = gl.constexpr(200), gl.constexpr(24)
START_REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K


@hopper.jit()
def _tile_at(tile, M, N):  # type: ignore[no-untyped-def]
    """(part of the depth, row, column) of a tile, the latter two counted in tiles."""
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    place = tile % (down * across)
    first = place // (BAND * across) * BAND
    height = min(down - first, BAND)
    inside = place % (BAND * across)
    return tile // (down * across), first + inside % height, inside // height


@hopper.jit()
def _produce(  # type: ignore[no-untyped-def]
    a_high_desc, a_low_desc, b_high_desc, b_low_desc, a_ring, b_ring, ready, free, M, N, K, length_k, tiles,
    BLOCK_K: gl.constexpr, TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """The producer warp: fills a stage of the rings as soon as both consumers are done with what was there."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    slot = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        k_part, row, column = _tile_at(tile, M, N)
        for k in range(k_part * length_k, min(k_part * length_k + length_k, K), BLOCK_K):
            stage = slot % STAGES
            full = ready.index(stage)
            mbarrier.wait(free.index(stage), ((slot // STAGES) & 1) ^ 1)
            mbarrier.expect(full, 2 * (ROWS + COLUMNS) * BLOCK_K * 2)
            for consumer in gl.static_range(2):
                row0 = row * ROWS + consumer * CONSUMER_ROWS
                if TRANSPOSED:
                    bulk_load(a_high_desc, [k, row0], full, a_ring.index(stage * 4 + consumer))
                    bulk_load(a_low_desc, [k, row0], full, a_ring.index(stage * 4 + 2 + consumer))
                else:
                    bulk_load(a_high_desc, [row0, k], full, a_ring.index(stage * 4 + consumer))
                    bulk_load(a_low_desc, [row0, k], full, a_ring.index(stage * 4 + 2 + consumer))
            bulk_load(b_high_desc, [k, column * COLUMNS], full, b_ring.index(stage * 2))
            bulk_load(b_low_desc, [k, column * COLUMNS], full, b_ring.index(stage * 2 + 1))
            slot += 1


@hopper.jit()
def _consume(  # type: ignore[no-untyped-def]
    CONSUMER: gl.constexpr, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """A consumer warp group: 64 rows of every tile."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    slot = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        k_part, row, column = _tile_at(tile, M, N)
        total = gl.zeros([CONSUMER_ROWS, COLUMNS], gl.float32, ACCUMULATOR)
        for _ in range(k_part * length_k, min(k_part * length_k + length_k, K), BLOCK_K):
            stage = slot % STAGES
            mbarrier.wait(ready.index(stage), (slot // STAGES) & 1)
            high = a_ring.index(stage * 4 + CONSUMER)
            low = a_ring.index(stage * 4 + 2 + CONSUMER)
            if TRANSPOSED:
                high = high.permute((1, 0))
                low = low.permute((1, 0))
            fresh = gl.zeros([CONSUMER_ROWS, COLUMNS], gl.float32, ACCUMULATOR)
            fresh = warpgroup_mma(high, b_ring.index(stage * 2 + 1), fresh, use_acc=False, is_async=True)
            fresh = warpgroup_mma(low, b_ring.index(stage * 2), fresh, is_async=True)
            fresh = warpgroup_mma(high, b_ring.index(stage * 2), fresh, is_async=True)
            fresh = warpgroup_mma_wait(num_outstanding=0, deps=(fresh,))
            mbarrier.arrive(free.index(stage))
            total += fresh
            slot += 1
        m = row * ROWS + CONSUMER * CONSUMER_ROWS + gl.arange(0, CONSUMER_ROWS, gl.SliceLayout(1, ACCUMULATOR))[:, None]
        n = column * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, ACCUMULATOR))[None, :]
        at_out = out_ptr + k_part.to(gl.int64) * M * N + m.to(gl.int64) * N + n
        gl.store(at_out, total, mask=(m < M) & (n < N))


@hopper.jit("M", "N", "K", "length_k", "tiles")
def split_product(  # type: ignore[no-untyped-def]
    a_high_desc, a_low_desc, b_high_desc, b_low_desc, out_ptr, M, N, K, length_k, tiles, BLOCK_K: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """`out` [split_k, M, N], whose sum is a · b of b [K, N] and a [K, M] if TRANSPOSED, else [M, K]."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    down: gl.constexpr = BLOCK_K if TRANSPOSED else CONSUMER_ROWS
    across: gl.constexpr = CONSUMER_ROWS if TRANSPOSED else BLOCK_K
    a_ring = gl.allocate_shared_memory(a_high_desc.dtype, [STAGES * 4, down, across], a_high_desc.layout)
    b_ring = gl.allocate_shared_memory(b_high_desc.dtype, [STAGES * 2, BLOCK_K, COLUMNS], b_high_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_consume, (0, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K, TRANSPOSED)),
            (_consume, (1, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K, TRANSPOSED)),
            (_produce, (a_high_desc, a_low_desc, b_high_desc, b_low_desc, a_ring, b_ring, ready, free, M, N, K,
                        length_k, tiles, BLOCK_K, TRANSPOSED)),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


class HopperProduct:
    """The product of operands that lie at multiples of 16 bytes; `strides` are those of the rows of a and b.

    The sums that matrix units make are half as long in a `fine` one.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        strides: tuple[int, int],
        transposed: bool,
        split_k: int,
        device: torch.device,
        *,
        fine: bool = False,
    ) -> None:
        m, n, k = shape
        half, consumer, depth = torch.float16, CONSUMER_ROWS.value, FINE_TILE_K if fine else TILE_K
        whole, block = ((k, m), (depth, consumer)) if transposed else ((m, k), (consumer, depth))
        self._a = hopper.Block(whole, strides[0], block, half)
        self._b = hopper.Block((k, n), strides[1], (depth, COLUMNS.value), half)
        tiles = triton.cdiv(m, ROWS.value) * triton.cdiv(n, COLUMNS.value)
        length_k = triton.cdiv(triton.cdiv(k, split_k), depth) * depth
        self._numbers = (m, n, k, length_k, tiles * split_k, depth, transposed)
        grid = (min(multiprocessors(device), tiles * split_k), 1, 1)
        stand_ins = [block.stand_in for block in (self._a, self._a, self._b, self._b)]
        arguments = (*stand_ins, torch.float32, *self._numbers)
        kernel = compiled(split_product, arguments, grid, device, num_warps=4, maxnreg=START_REGISTERS)
        self._run: Any = kernel[grid]

    def __call__(self, out: torch.Tensor, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> None:
        """Write a · b, or parts that add up to it, from the high and low part of either, as they lie in memory."""
        self._run(*map(self._a, a), *map(self._b, b), out, *self._numbers)
