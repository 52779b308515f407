"""Large float32 products of split matrices, in one launch. For Hopper.

A persistent grid takes one tile of 128 × 128 after another. A producer warp has the bulk copy engine fill a ring of
tiles of the high and low parts of both operands; two consumer warp groups multiply, 64 rows of the tile each: high·low,
low·high and high·high over BLOCK_K terms, added to the total with rounding, because matrix units cut sums off. A
smaller BLOCK_K is for products that have to be finer. A tile may hold one part of the depth (split-K), so that all of
the device has work.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from aclgrad.gpu import hopper
from aclgrad.gpu.dialect import bulk_load
from aclgrad.gpu.hopper_product import (
    CONSUMER_ROWS,
    PRODUCER_REGISTERS,
    ROWS,
    START_REGISTERS,
    ring_barriers,
    tile_at,
    tile_grid,
)
from aclgrad.gpu.operands import NamedBulkKernel, Operand

SPLIT_COLUMNS = gl.constexpr(128)  # of a tile, half of what a product of operands that are not split has
TILE_K, FINE_TILE_K = 64, 32  # terms of the depth in a tile of a ring
RING_K = gl.constexpr(192)  # terms in all stages together
SPLIT_ACCUMULATOR = gl.constexpr(
    gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16])
)
SPLIT_CONSUMER_REGISTERS = gl.constexpr(200)


@hopper.jit()
def _part_at(tile, M, N):
    """(part of the depth, row, column) of a tile, the latter two counted in tiles."""
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, SPLIT_COLUMNS)
    row, column = tile_at(tile % (down * across), down, across)
    return tile // (down * across), row, column


@hopper.jit()
def _produce(
    a_high_desc, a_low_desc, b_high_desc, b_low_desc, a_ring, b_ring, ready, free, M, N, K, length_k, tiles,
    BLOCK_K: gl.constexpr, TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """The producer warp: fills a stage of the rings as soon as both consumers are done with what was there."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    slot = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        k_part, row, column = _part_at(tile, M, N)
        for k in range(k_part * length_k, min(k_part * length_k + length_k, K), BLOCK_K):
            stage = slot % STAGES
            full = ready.index(stage)
            mbarrier.wait(free.index(stage), ((slot // STAGES) & 1) ^ 1)
            mbarrier.expect(full, 2 * (ROWS + SPLIT_COLUMNS) * BLOCK_K * 2)
            for consumer in gl.static_range(2):
                row0 = row * ROWS + consumer * CONSUMER_ROWS
                if TRANSPOSED:
                    bulk_load(a_high_desc, [k, row0], full, a_ring.index(stage * 4 + consumer))
                    bulk_load(a_low_desc, [k, row0], full, a_ring.index(stage * 4 + 2 + consumer))
                else:
                    bulk_load(a_high_desc, [row0, k], full, a_ring.index(stage * 4 + consumer))
                    bulk_load(a_low_desc, [row0, k], full, a_ring.index(stage * 4 + 2 + consumer))
            bulk_load(b_high_desc, [k, column * SPLIT_COLUMNS], full, b_ring.index(stage * 2))
            bulk_load(b_low_desc, [k, column * SPLIT_COLUMNS], full, b_ring.index(stage * 2 + 1))
            slot += 1


@hopper.jit()
def _consume(
    CONSUMER: gl.constexpr, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """A consumer warp group: 64 rows of every tile."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    slot = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        k_part, row, column = _part_at(tile, M, N)
        total = gl.zeros([CONSUMER_ROWS, SPLIT_COLUMNS], gl.float32, SPLIT_ACCUMULATOR)
        for _ in range(k_part * length_k, min(k_part * length_k + length_k, K), BLOCK_K):
            stage = slot % STAGES
            mbarrier.wait(ready.index(stage), (slot // STAGES) & 1)
            high = a_ring.index(stage * 4 + CONSUMER)
            low = a_ring.index(stage * 4 + 2 + CONSUMER)
            if TRANSPOSED:
                high = high.permute((1, 0))
                low = low.permute((1, 0))
            fresh = gl.zeros([CONSUMER_ROWS, SPLIT_COLUMNS], gl.float32, SPLIT_ACCUMULATOR)
            fresh = warpgroup_mma(high, b_ring.index(stage * 2 + 1), fresh, use_acc=False, is_async=True)
            fresh = warpgroup_mma(low, b_ring.index(stage * 2), fresh, is_async=True)
            fresh = warpgroup_mma(high, b_ring.index(stage * 2), fresh, is_async=True)
            fresh = warpgroup_mma_wait(num_outstanding=0, deps=(fresh,))
            mbarrier.arrive(free.index(stage))
            total += fresh
            slot += 1
        m = (
            row * ROWS
            + CONSUMER * CONSUMER_ROWS
            + gl.arange(0, CONSUMER_ROWS, gl.SliceLayout(1, SPLIT_ACCUMULATOR))[:, None]
        )
        n = column * SPLIT_COLUMNS + gl.arange(0, SPLIT_COLUMNS, gl.SliceLayout(0, SPLIT_ACCUMULATOR))[None, :]
        at_out = out_ptr + k_part.to(gl.int64) * M * N + m.to(gl.int64) * N + n
        gl.store(at_out, total, mask=(m < M) & (n < N))


@hopper.jit("M", "N", "K", "length_k", "tiles")
def split_product(
    a_high_desc, a_low_desc, b_high_desc, b_low_desc, out_ptr, M, N, K, length_k, tiles, BLOCK_K: gl.constexpr,
    TRANSPOSED: gl.constexpr,
):  # fmt: skip
    """`out` [split_k, M, N], whose sum is a · b of b [K, N] and a [K, M] if TRANSPOSED, else [M, K]."""
    STAGES: gl.constexpr = RING_K // BLOCK_K
    down: gl.constexpr = BLOCK_K if TRANSPOSED else CONSUMER_ROWS
    across: gl.constexpr = CONSUMER_ROWS if TRANSPOSED else BLOCK_K
    a_ring = gl.allocate_shared_memory(a_high_desc.dtype, [STAGES * 4, down, across], a_high_desc.layout)
    b_ring = gl.allocate_shared_memory(b_high_desc.dtype, [STAGES * 2, BLOCK_K, SPLIT_COLUMNS], b_high_desc.layout)
    ready, free = ring_barriers(STAGES)
    gl.warp_specialize(
        [
            (_consume, (0, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K, TRANSPOSED)),
            (_consume, (1, out_ptr, a_ring, b_ring, ready, free, M, N, K, length_k, tiles, BLOCK_K, TRANSPOSED)),
            (_produce, (a_high_desc, a_low_desc, b_high_desc, b_low_desc, a_ring, b_ring, ready, free, M, N, K,
                        length_k, tiles, BLOCK_K, TRANSPOSED)),
        ],
        [4, 1],
        [SPLIT_CONSUMER_REGISTERS, PRODUCER_REGISTERS],
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
        a = hopper.Block(whole, strides[0], block, half)
        b = hopper.Block((k, n), strides[1], (depth, SPLIT_COLUMNS.value), half)
        tile = (ROWS.value, SPLIT_COLUMNS.value)
        numbers = {
            "M": m, "N": n, "K": k, "length_k": triton.cdiv(triton.cdiv(k, split_k), depth) * depth,
            "tiles": triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1]) * split_k,
        }  # fmt: skip
        self._kernel = NamedBulkKernel(
            split_product, tile_grid(m, n, device, tile, split_k), device,
            {"a_high": a, "a_low": a, "b_high": b, "b_low": b}, [Operand("out", torch.float32)], numbers,
            {"BLOCK_K": depth, "TRANSPOSED": transposed}, any_alignment=True, num_warps=4, maxnreg=START_REGISTERS,
        )  # fmt: skip

    def __call__(self, out: torch.Tensor, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> None:
        """Write a · b, or parts that add up to it, from the high and low part of either, as they lie in memory."""
        (a_high, a_low), (b_high, b_low) = a, b
        self._kernel({"out": out, "a_high": a_high, "a_low": a_low, "b_high": b_high, "b_low": b_low})
