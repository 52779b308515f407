# ruff: noqa: RUF005
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""Weights and products of the gradient's persistent grid."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from aclgrad.gpu.dialect import async_load, barrier

IN_REGISTERS, IN_SHARED, IN_MEMORY = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2)
IN_SHARED_FOR_WARPGROUPS = gl.constexpr(3)
TILE_K = gl.constexpr(64)  # columns of gate gradients that warpgroups take at a time: 128 bytes


@gluon.jit
def tf32(x):
    """The leading bits of x, rounded, that a matrix unit reads of a float32."""
    return ((x.to(gl.int32, bitcast=True) + 0x1000) & -0x2000).to(gl.float32, bitcast=True)


@gluon.jit
def multiply(w, d, total, PRECISE: gl.constexpr):
    """Add w @ d to a total.

    A precise product of float32 is made of three TF32 products, of the leading and the remaining bits. A matrix unit
    cuts its sums off rather than rounding them, so these start from zero each time.
    """
    if w.dtype != gl.float32:
        total = mma_v2(w, d, total)
    elif PRECISE:
        w_tf32 = tf32(w)
        d_tf32 = tf32(d)
        product = mma_v2(w_tf32, d - d_tf32, gl.zeros_like(total), input_precision="tf32")
        product = mma_v2(w - w_tf32, d_tf32, product, input_precision="tf32")
        total += mma_v2(w_tf32, d_tf32, product, input_precision="tf32")
    else:
        total = mma_v2(w, d, total, input_precision="tf32")
    return total


@gluon.jit
def within(exists, k, K: gl.constexpr, EXACT: gl.constexpr):
    """Which elements of an operand exist; only the last of the K columns may be missing."""
    if not EXACT:
        exists = exists & (k < K)
    return exists


@gluon.jit
def load_weights(
    w_ptr, exists, k, K: gl.constexpr, EXACT: gl.constexpr, K_BLOCKS: gl.constexpr, WARPS: gl.constexpr,
    UNITS: gl.constexpr, BLOCK_K: gl.constexpr, VECTOR: gl.constexpr, WEIGHTS_IN: gl.constexpr,
):  # fmt: skip
    """The program's part of w_hh in shared memory or registers; nothing where it is read at every step."""
    if WEIGHTS_IN == IN_SHARED:
        layout: gl.constexpr = gl.SwizzledSharedLayout(VECTOR, 1, 8, [2, 1, 0])
        weights = gl.allocate_shared_memory(w_ptr.dtype.element_ty, [K_BLOCKS, WARPS, UNITS, BLOCK_K], layout)
        for block in gl.static_range(K_BLOCKS):
            mask = within(exists, k + block * BLOCK_K, K, EXACT)
            weights.index(block).store(gl.load(w_ptr + block * BLOCK_K, mask=mask, other=0.0))
    else:
        weights = ()
        if WEIGHTS_IN == IN_REGISTERS:
            for block in gl.static_range(K_BLOCKS):
                mask = within(exists, k + block * BLOCK_K, K, EXACT)
                weights = weights + (gl.load(w_ptr + block * BLOCK_K, mask=mask, other=0.0),)
    return weights


@gluon.jit
def load_weights_for_warpgroups(
    w_hh_ptr, u0, k0, H: gl.constexpr, UNITS: gl.constexpr, K_TILES: gl.constexpr, WARPS: gl.constexpr
):
    """The program's part of w_hh in shared memory, as warpgroups multiply it."""
    dtype: gl.constexpr = w_hh_ptr.dtype.element_ty
    weights = gl.allocate_shared_memory(dtype, [K_TILES, UNITS, TILE_K], gl.NVMMASharedLayout(128, 16, 2))
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    u = u0 + gl.arange(0, UNITS, gl.SliceLayout(1, layout))[:, None]
    k = k0 + gl.arange(0, TILE_K, gl.SliceLayout(0, layout))[None, :]
    for tile in range(K_TILES):
        weights.index(tile).store(gl.load(w_hh_ptr + u * (4 * H) + k + tile * TILE_K, mask=u < H, other=0.0))
    fence_async_shared()
    return weights


@gluon.jit
def multiply_by_warpgroups(
    delta_ptr, n0, N, row_stride, k0, weights, stages, UNITS: gl.constexpr, ROWS: gl.constexpr, K_TILES: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Weights @ gate gradients of ROWS rows, which pass through shared memory tile by tile."""
    SIDE: gl.constexpr = WARPS // 4
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, SIDE], [16, ROWS // SIDE, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    n = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    k = k0 + gl.arange(0, TILE_K, gl.SliceLayout(0, layout))[None, :]
    delta_ptr = delta_ptr + n * row_stride + k
    for tile in gl.static_range(STAGES - 1):
        if tile < K_TILES:
            async_load(stages.index(tile), delta_ptr + tile * TILE_K, mask=n < N)
        async_copy.commit_group()
    total = gl.zeros([UNITS, ROWS], gl.float32, mma)
    for tile in range(K_TILES):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        ahead = tile + STAGES - 1
        if ahead < K_TILES:
            async_load(stages.index(ahead % STAGES), delta_ptr + ahead * TILE_K, mask=n < N)
        async_copy.commit_group()
        arrived = stages.index(tile % STAGES).permute((1, 0))
        total = warpgroup_mma(weights.index(tile), arrived, total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def multiply_by_warps(
    delta_ptr, exists, k, weights, w_ptr, w_exists, w_k, UNITS: gl.constexpr, ROWS: gl.constexpr, K: gl.constexpr,
    EXACT: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, WARPS: gl.constexpr, mma: gl.constexpr,
    w_layout: gl.constexpr, WEIGHTS_IN: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Every warp's sum over its part of the depth: [WARPS, UNITS, ROWS]."""
    total = gl.zeros([WARPS, UNITS, ROWS], gl.float32, mma)
    for block in gl.static_range(K_BLOCKS):
        mask = within(exists, k + block * BLOCK_K, K, EXACT)
        d = gl.load(delta_ptr + k + block * BLOCK_K, mask=mask, other=0.0, cache_modifier=".cg")
        if WEIGHTS_IN == IN_SHARED:
            w = weights.index(block).load(w_layout)
        elif WEIGHTS_IN == IN_REGISTERS:
            w = weights[block]
        else:
            w_mask = within(w_exists, w_k + block * BLOCK_K, K, EXACT)
            w = gl.load(w_ptr + block * BLOCK_K, mask=w_mask, other=0.0)
        total = multiply(w, d, total, PRECISE)
    return total


@gluon.jit
def weight_positions(
    slice_, k0, UNITS: gl.constexpr, WARPS: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr,
    layout: gl.constexpr,
):  # fmt: skip
    """The units and the terms of the depth of each warp's first block of weights [WARPS, UNITS, BLOCK_K]."""
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    unit = slice_ * UNITS + gl.arange(0, UNITS, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    block: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, layout))
    k = k0 + warp * (K_BLOCKS * BLOCK_K) + gl.arange(0, BLOCK_K, block)[None, None, :]
    return unit, k


@gluon.jit
def delta_positions(
    n0, k0, ROWS: gl.constexpr, WARPS: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, layout: gl.constexpr
):
    """The rows and the terms of the depth of each warp's first block of gate gradients [WARPS, BLOCK_K, ROWS]."""
    warp = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    block: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    k = k0 + warp * (K_BLOCKS * BLOCK_K) + gl.arange(0, BLOCK_K, block)[None, :, None]
    return row, k


@gluon.jit
def partial_offsets(
    slice_, k_part, UNITS: gl.constexpr, OWN_UNITS: gl.constexpr, ROWS: gl.constexpr, SPLIT_K: gl.constexpr,
    unit_layout: gl.constexpr, split_layout: gl.constexpr,
):  # fmt: skip
    """Where the partial sums lie that a program sends, and that it takes from the SPLIT_K programs of its slice."""
    sent = gl.program_id(0) * (UNITS * ROWS) + gl.arange(0, UNITS, gl.SliceLayout(1, unit_layout))[:, None]
    sent += gl.arange(0, ROWS, gl.SliceLayout(0, unit_layout))[None, :] * UNITS
    sender: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, split_layout))
    taken = (slice_ * SPLIT_K + gl.arange(0, SPLIT_K, sender)[:, None, None]) * (UNITS * ROWS)
    unit: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, split_layout))
    taken += k_part * OWN_UNITS + gl.arange(0, OWN_UNITS, unit)[None, :, None]
    row: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, split_layout))
    taken += gl.arange(0, ROWS, row)[None, None, :] * UNITS
    return sent, taken
