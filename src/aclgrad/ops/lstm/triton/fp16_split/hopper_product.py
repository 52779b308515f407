"""Large float32 products from the halves of their operands, in one launch. For Hopper.

A block stays on its multiprocessor and takes one tile of 128 × 128 after another. One warp has the bulk copy engine
fill a ring of slices of both halves of both operands; two warp groups multiply, 64 rows of the tile each: high·low,
low·high and high·high of a slice, begun anew each time, because matrix units cut sums off, and added with rounding.
Shorter slices are for products that have to be finer. A tile may be one share of the depth of its place in the result,
so that all of the device has work.
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

GROUP_ROWS = gl.constexpr(64)  # of a tile, for each warp group
ROWS = gl.constexpr(128)
COLUMNS = gl.constexpr(128)
SLICE, FINE_SLICE = 64, 32  # terms of the depth
RING = gl.constexpr(192)  # of all slices together
BAND = gl.constexpr(16)  # tiles of a column that are taken together, for the cache's sake
SUMS = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16]))
GROUP_REGISTERS, LOADER_REGISTERS = gl.constexpr(200), gl.constexpr(24)
REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K


@hopper.jit()
def _place(job, M, N):  # type: ignore[no-untyped-def]
    """(share, row, column) of a job, the latter two counted in tiles."""
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    tile = job % (down * across)
    first = tile // (BAND * across) * BAND
    height = min(down - first, BAND)
    inside = tile % (BAND * across)
    return job // (down * across), first + inside % height, inside // height


@hopper.jit()
def _load(  # type: ignore[no-untyped-def]
    a_high, a_low, b_high, b_low, a_ring, b_ring, ready, free, M, N, K, share, jobs, DEPTH: gl.constexpr,
    STACKED: gl.constexpr,
):  # fmt: skip
    """The warp that loads: every slice of every job, as soon as both groups are done with what was in its place."""
    SLICES: gl.constexpr = RING // DEPTH
    step = 0
    for job in range(gl.program_id(0), jobs, gl.num_programs(0)):
        part, row, column = _place(job, M, N)
        for k in range(part * share, min(part * share + share, K), DEPTH):
            at = step % SLICES
            full = ready.index(at)
            mbarrier.wait(free.index(at), ((step // SLICES) & 1) ^ 1)
            mbarrier.expect(full, 2 * (ROWS + COLUMNS) * DEPTH * 2)
            for group in gl.static_range(2):
                start = row * ROWS + group * GROUP_ROWS
                if STACKED:
                    bulk_load(a_high, [k, start], full, a_ring.index(at * 4 + group))
                    bulk_load(a_low, [k, start], full, a_ring.index(at * 4 + 2 + group))
                else:
                    bulk_load(a_high, [start, k], full, a_ring.index(at * 4 + group))
                    bulk_load(a_low, [start, k], full, a_ring.index(at * 4 + 2 + group))
            bulk_load(b_high, [k, column * COLUMNS], full, b_ring.index(at * 2))
            bulk_load(b_low, [k, column * COLUMNS], full, b_ring.index(at * 2 + 1))
            step += 1


@hopper.jit()
def _multiply(  # type: ignore[no-untyped-def]
    GROUP: gl.constexpr, out, a_ring, b_ring, ready, free, M, N, K, share, jobs, DEPTH: gl.constexpr,
    STACKED: gl.constexpr,
):  # fmt: skip
    SLICES: gl.constexpr = RING // DEPTH
    step = 0
    for job in range(gl.program_id(0), jobs, gl.num_programs(0)):
        part, row, column = _place(job, M, N)
        total = gl.zeros([GROUP_ROWS, COLUMNS], gl.float32, SUMS)
        for _ in range(part * share, min(part * share + share, K), DEPTH):
            at = step % SLICES
            mbarrier.wait(ready.index(at), (step // SLICES) & 1)
            high = a_ring.index(at * 4 + GROUP)
            low = a_ring.index(at * 4 + 2 + GROUP)
            if STACKED:
                high = high.permute((1, 0))
                low = low.permute((1, 0))
            fresh = gl.zeros([GROUP_ROWS, COLUMNS], gl.float32, SUMS)
            fresh = warpgroup_mma(high, b_ring.index(at * 2 + 1), fresh, use_acc=False, is_async=True)
            fresh = warpgroup_mma(low, b_ring.index(at * 2), fresh, is_async=True)
            fresh = warpgroup_mma(high, b_ring.index(at * 2), fresh, is_async=True)
            fresh = warpgroup_mma_wait(num_outstanding=0, deps=(fresh,))
            mbarrier.arrive(free.index(at))
            total += fresh
            step += 1
        m = row * ROWS + GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, SUMS))[:, None]
        n = column * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, SUMS))[None, :]
        at_out = out + part.to(gl.int64) * M * N + m.to(gl.int64) * N + n
        gl.store(at_out, total, mask=(m < M) & (n < N))


@hopper.jit("M", "N", "K", "share", "jobs")
def multiply_halves(  # type: ignore[no-untyped-def]
    a_high, a_low, b_high, b_low, out, M, N, K, share, jobs, DEPTH: gl.constexpr, STACKED: gl.constexpr
):
    """Out [shares, M, N], whose sum is a · b of b [K, N] and a [K, M] if STACKED, else [M, K]."""
    SLICES: gl.constexpr = RING // DEPTH
    down: gl.constexpr = DEPTH if STACKED else GROUP_ROWS
    across: gl.constexpr = GROUP_ROWS if STACKED else DEPTH
    a_ring = gl.allocate_shared_memory(a_high.dtype, [SLICES * 4, down, across], a_high.layout)
    b_ring = gl.allocate_shared_memory(b_high.dtype, [SLICES * 2, DEPTH, COLUMNS], b_high.layout)
    ready = gl.allocate_shared_memory(gl.int64, [SLICES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLICES, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(SLICES):
        mbarrier.init(ready.index(at), count=1)
        mbarrier.init(free.index(at), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_multiply, (0, out, a_ring, b_ring, ready, free, M, N, K, share, jobs, DEPTH, STACKED)),
            (_multiply, (1, out, a_ring, b_ring, ready, free, M, N, K, share, jobs, DEPTH, STACKED)),
            (_load, (a_high, a_low, b_high, b_low, a_ring, b_ring, ready, free, M, N, K, share, jobs, DEPTH, STACKED)),
        ],
        [4, 1],
        [GROUP_REGISTERS, LOADER_REGISTERS],
    )


class HalvesProduct:
    """The product of operands that lie at multiples of 16 bytes; `strides` are those of the rows of a and b.

    Sums of a `fine` one begin anew twice as often.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        strides: tuple[int, int],
        stacked: bool,
        shares: int,
        device: torch.device,
        *,
        fine: bool = False,
    ) -> None:
        m, n, k = shape
        half, group, depth = torch.float16, GROUP_ROWS.value, FINE_SLICE if fine else SLICE
        whole, block = ((k, m), (depth, group)) if stacked else ((m, k), (group, depth))
        self._a = hopper.Block(whole, strides[0], block, half)
        self._b = hopper.Block((k, n), strides[1], (depth, COLUMNS.value), half)
        tiles = triton.cdiv(m, ROWS.value) * triton.cdiv(n, COLUMNS.value)
        share = triton.cdiv(triton.cdiv(k, shares), depth) * depth
        self._numbers = (m, n, k, share, tiles * shares, depth, stacked)
        grid = (min(multiprocessors(device), tiles * shares), 1, 1)
        stand_ins = [block.stand_in for block in (self._a, self._a, self._b, self._b)]
        arguments = (*stand_ins, torch.float32, *self._numbers)
        kernel = compiled(multiply_halves, arguments, grid, device, num_warps=4, maxnreg=REGISTERS)
        self._run: Any = kernel[grid]

    def __call__(self, out: torch.Tensor, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> None:
        """Write the shares of a · b, of the high and low half of either, as they lie in memory."""
        self._run(*map(self._a, a), *map(self._b, b), out, *self._numbers)
