"""Products on Hopper, tile by tile: what the kernels that compute something beside them have in common.

A block stays on its multiprocessor and takes one tile of 128 × 256 after another. One warp has the bulk copy engine
fill a ring of slices of both operands; two warp groups multiply, 64 rows of the tile each, and finish their sums while
the next slices arrive. `STACKED` operands have the summed dimension first, a [K, M] and b [K, N]; else they are
a [M, K] and b [N, K].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from aclgrad.gpu import hopper
from aclgrad.gpu.dialect import barrier, bulk_load, bulk_store
from aclgrad.gpu.launch import compiled, multiprocessors

from .choose import ceil_div

GROUP_ROWS = gl.constexpr(64)  # of a tile, for each warp group
ROWS = gl.constexpr(128)
COLUMNS = gl.constexpr(256)
DEPTH = gl.constexpr(64)  # of a slice: rows of 128 bytes
PIECE = gl.constexpr(64)  # columns of a tile that are finished and stored at a time
PIECES = gl.constexpr(4)
SLICES = gl.constexpr(4)
BAND = gl.constexpr(16)  # tiles of a column that are taken together, for the cache's sake
SUMS = gl.constexpr(gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16]))
REGISTERS = 168  # of a thread at the start, when 12 warps share 64 K
GROUP_REGISTERS, LOADER_REGISTERS = gl.constexpr(232), gl.constexpr(24)  # where one warp only loads
LOG2E = gl.constexpr(1.4426950408889634)


@hopper.jit()
def place(tile, down, across):  # type: ignore[no-untyped-def]
    """(row, column) of a tile, both counted in tiles."""
    first = tile // (BAND * across) * BAND
    height = min(down - first, BAND)
    inside = tile % (BAND * across)
    return first + inside % height, inside // height


@hopper.jit()
def memory(a, b, out, STACKED: gl.constexpr):  # type: ignore[no-untyped-def]
    """Shared memory: rings of slices of both operands, two buffers of each group for its results, barriers."""
    a_ring = gl.allocate_shared_memory(a.dtype, [SLICES * 2, GROUP_ROWS, DEPTH], a.layout)
    if STACKED:
        b_ring = gl.allocate_shared_memory(b.dtype, [SLICES, DEPTH, COLUMNS], b.layout)
    else:
        b_ring = gl.allocate_shared_memory(b.dtype, [SLICES, COLUMNS, DEPTH], b.layout)
    buffers = gl.allocate_shared_memory(out.dtype, [4, GROUP_ROWS, PIECE], out.layout)
    ready = gl.allocate_shared_memory(gl.int64, [SLICES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [SLICES, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(SLICES):
        mbarrier.init(ready.index(at), count=1)
        mbarrier.init(free.index(at), count=2)
    fence_async_shared()
    return a_ring, b_ring, buffers, ready, free


@hopper.jit()
def load(a, b, a_ring, b_ring, ready, free, M, N, K, STACKED: gl.constexpr):  # type: ignore[no-untyped-def]
    """The warp that loads: every slice of every tile, as soon as both groups are done with what was in its place."""
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = place(tile, down, across)
        for k in range(0, K, DEPTH):
            at = step % SLICES
            full = ready.index(at)
            mbarrier.wait(free.index(at), ((step // SLICES) & 1) ^ 1)
            mbarrier.expect(full, (ROWS + COLUMNS) * DEPTH * 2)
            for group in gl.static_range(2):
                start = row * ROWS + group * GROUP_ROWS
                if STACKED:
                    bulk_load(a, [k, start], full, a_ring.index(at * 2 + group))
                else:
                    bulk_load(a, [start, k], full, a_ring.index(at * 2 + group))
            if STACKED:
                bulk_load(b, [k, column * COLUMNS], full, b_ring.index(at))
            else:
                bulk_load(b, [column * COLUMNS, k], full, b_ring.index(at))
            step += 1


@hopper.jit()
def accumulate(GROUP: gl.constexpr, a_ring, b_ring, ready, free, K, step, STACKED: gl.constexpr):  # type: ignore[no-untyped-def]
    """(sums of a group's rows of a tile, the next step), in four pieces by columns."""
    sums = gl.zeros([GROUP_ROWS, COLUMNS], gl.float32, SUMS)
    for k in range(0, K, DEPTH):
        at = step % SLICES
        mbarrier.wait(ready.index(at), (step // SLICES) & 1)
        if STACKED:
            a_slice = a_ring.index(at * 2 + GROUP).permute((1, 0))
            b_slice = b_ring.index(at)
        else:
            a_slice = a_ring.index(at * 2 + GROUP)
            b_slice = b_ring.index(at).permute((1, 0))
        sums = warpgroup_mma(a_slice, b_slice, sums, use_acc=k > 0, is_async=True)
        sums = warpgroup_mma_wait(num_outstanding=1, deps=(sums,))
        mbarrier.arrive(free.index((step + SLICES - 1) % SLICES), pred=k > 0)
        step += 1
    sums = warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
    mbarrier.arrive(free.index((step + SLICES - 1) % SLICES))
    left, right = _halves(sums, 2 * PIECE)
    first, second = _halves(left, PIECE)
    third, fourth = _halves(right, PIECE)
    return first, second, third, fourth, step


@hopper.jit()
def _halves(values, WIDTH: gl.constexpr):  # type: ignore[no-untyped-def]
    """The left and the right columns: every thread has some of both."""
    return values.reshape(GROUP_ROWS, 2, WIDTH).permute(0, 2, 1).split()


@hopper.jit()
def store(GROUP: gl.constexpr, out, buffers, values, row, column, INDEX: gl.constexpr):  # type: ignore[no-untyped-def]
    """Round a piece and have it copied to `out` while the next one is computed."""
    buffer = buffers.index(GROUP * 2 + INDEX % 2)
    tma.store_wait(1)
    barrier()
    buffer.store(values.to(out.dtype))
    fence_async_shared()
    barrier()
    bulk_store(out, [row, column + INDEX * PIECE], buffer)


def resident(
    function: Any, rows: int, columns: int, device: torch.device, matrices: Sequence[hopper.Block],
    others: Sequence[Any],
) -> Callable[..., None]:  # fmt: skip
    """The launcher of a kernel over the tiles of a [rows, columns] result.

    It takes matrices, then arguments as `others` describes them: dtypes of tensors, and numbers.
    """
    tiles = ceil_div(rows, ROWS.value) * ceil_div(columns, COLUMNS.value)
    grid = (min(multiprocessors(device), tiles), 1, 1)
    stand_ins = (block.stand_in for block in matrices)
    kernel = compiled(function, (*stand_ins, *others), grid, device, num_warps=4, maxnreg=REGISTERS)
    launch: Callable[..., None] = kernel[grid]
    return launch
