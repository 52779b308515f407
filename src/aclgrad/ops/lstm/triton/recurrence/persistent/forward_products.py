# mypy: ignore-errors
# ruff: noqa: RUF005
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""Weights and products of the forward pass's persistent grid."""

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

from ..backward_step import replaced
from .backward_products import IN_REGISTERS, IN_SHARED, TILE_K, within
from .backward_products import load_weights as load_weight_blocks


@gluon.jit
def load_weights(
    w_hh_ptr, unit, k, H: gl.constexpr, EXACT: gl.constexpr, K_BLOCKS: gl.constexpr, K_WARPS: gl.constexpr,
    UNITS: gl.constexpr, BLOCK_K: gl.constexpr, VECTOR: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """The rows of w_hh that make each of the four gates of these units: KEPT blocks in registers, others in shared."""
    REST: gl.constexpr = K_BLOCKS - KEPT
    weights = ()
    if w_hh_ptr is not None and KEPT >= 0:
        for gate in gl.static_range(4):
            at = w_hh_ptr + (gate * H + unit) * H + k
            in_registers = load_weight_blocks(
                at, unit < H, k, H, EXACT, KEPT, K_WARPS, UNITS, BLOCK_K, VECTOR, IN_REGISTERS
            )
            in_shared = ()
            if REST > 0:
                in_shared = load_weight_blocks(
                    at + KEPT * BLOCK_K, unit < H, k + KEPT * BLOCK_K, H, EXACT, REST, K_WARPS, UNITS, BLOCK_K, VECTOR,
                    IN_SHARED,
                )  # fmt: skip
            weights = weights + ((in_registers, in_shared),)
    return weights


@gluon.jit
def gate_weights(
    weights, w_hh_ptr, gate: gl.constexpr, block: gl.constexpr, unit, k, H: gl.constexpr, EXACT: gl.constexpr,
    BLOCK_K: gl.constexpr, layout: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """One gate's weights for a block of the depth, from where they are."""
    if KEPT < 0:
        mask = within(unit < H, k + block * BLOCK_K, H, EXACT)
        w = gl.load(w_hh_ptr + (gate * H + unit) * H + k + block * BLOCK_K, mask=mask, other=0.0)
    elif block < KEPT:
        w = weights[gate][0][block]
    else:
        w = weights[gate][1].index(block - KEPT).load(layout)
    return w


@gluon.jit
def load_h(
    at, exists, k, plane, H_STRIDE: gl.constexpr, EXACT: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """All that a thread multiplies of h: every block of the depth, then the low parts of them."""
    hs = ()
    for part in gl.static_range(SPLIT):
        for block in gl.static_range(K_BLOCKS):
            mask = within(exists, k + block * BLOCK_K, H_STRIDE, EXACT)
            hs = hs + (gl.load(at + part * plane + block * BLOCK_K, mask=mask, other=0.0, cache_modifier=".cg"),)
    return hs


@gluon.jit
def load_weights_for_warpgroups(
    w_hh_ptr, w_hh_low_ptr, u0, H: gl.constexpr, UNITS: gl.constexpr, SPLIT: gl.constexpr, WARPS: gl.constexpr
):
    """The gates of these units in shared memory for warpgroups: row 4 · unit + gate, low parts below."""
    weights = gl.allocate_shared_memory(
        w_hh_ptr.dtype.element_ty, [H // TILE_K, 4 * UNITS * SPLIT, TILE_K], gl.NVMMASharedLayout(128, 16, 2)
    )
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    row = gl.arange(0, 4 * UNITS * SPLIT, gl.SliceLayout(1, layout))[:, None]
    unit = u0 + row % (4 * UNITS) // 4
    at = ((row % 4) * H + unit) * H + gl.arange(0, TILE_K, gl.SliceLayout(0, layout))[None, :]
    for tile in range(H // TILE_K):
        w = gl.load(w_hh_ptr + at + tile * TILE_K, mask=(unit < H) & (row < 4 * UNITS), other=0.0)
        if SPLIT == 2:
            w += gl.load(w_hh_low_ptr + at + tile * TILE_K, mask=(unit < H) & (row >= 4 * UNITS), other=0.0)
        weights.index(tile).store(w)
    fence_async_shared()
    return weights


@gluon.jit
def multiply_by_warpgroups(
    h_ptr, plane, n0, N, weights, stages, H: gl.constexpr, GATES: gl.constexpr, ROWS: gl.constexpr, SPLIT: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Weights @ h of ROWS rows, all parts of it, which pass through shared memory tile by tile.

    Sums of split operands are short: matrix units cut sums off rather than rounding them.
    """
    K_TILES: gl.constexpr = H // TILE_K
    AHEAD: gl.constexpr = STAGES - 2  # one tile is being multiplied, one may still be
    TILES_PER_SUM: gl.constexpr = 2 if SPLIT == 2 else K_TILES
    DOWN: gl.constexpr = min(WARPS, GATES // 16)
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [DOWN, WARPS // DOWN], [16, ROWS * DOWN // WARPS, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    n = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    h_at = h_ptr + n * H + gl.arange(0, TILE_K, gl.SliceLayout(0, layout))[None, :]
    for first in gl.static_range(AHEAD):
        if first < SPLIT * K_TILES:
            source = h_at + first % K_TILES * TILE_K + first // K_TILES * plane
            async_load(stages.index(first), source, mask=n < N)
        async_copy.commit_group()
    total = gl.zeros([GATES, ROWS], gl.float32, mma)
    for start in range(0, SPLIT * K_TILES, TILES_PER_SUM):
        product = gl.zeros([GATES, ROWS], gl.float32, mma)
        for tile in range(start, min(start + TILES_PER_SUM, SPLIT * K_TILES)):
            async_copy.wait_group(AHEAD - 1)
            fence_async_shared()
            barrier()
            ahead = tile + AHEAD
            if ahead < SPLIT * K_TILES:
                source = h_at + ahead % K_TILES * TILE_K + ahead // K_TILES * plane
                async_load(stages.index(ahead % STAGES), source, mask=n < N)
            async_copy.commit_group()
            h_tile = stages.index(tile % STAGES).permute((1, 0))
            product = warpgroup_mma(weights.index(tile % K_TILES), h_tile, product, is_async=True)
            product = warpgroup_mma_wait(1, deps=[product])
        total += warpgroup_mma_wait(0, deps=[product])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def split_gates(
    total, UNITS: gl.constexpr, ROWS: gl.constexpr, SPLIT: gl.constexpr, WARPS: gl.constexpr, own_layout: gl.constexpr
):
    """The four gates of a product by warpgroups."""
    LANES: gl.constexpr = min(UNITS, 32)
    quads: gl.constexpr = gl.BlockedLayout([4, 1], [LANES, 32 // LANES], [1, WARPS], [0, 1])
    four = gl.permute(gl.reshape(gl.convert_layout(total, quads), [SPLIT, UNITS, 2, 2, ROWS]), (1, 4, 2, 3, 0))
    if SPLIT == 2:
        high, low = gl.split(four)
        even, odd = gl.split(high + low)
    else:
        even, odd = gl.split(gl.sum(four, axis=4))
    i, g = gl.split(even)
    f, o = gl.split(odd)
    return (
        gl.convert_layout(i, own_layout, assert_trivial=True),
        gl.convert_layout(f, own_layout, assert_trivial=True),
        gl.convert_layout(g, own_layout, assert_trivial=True),
        gl.convert_layout(o, own_layout, assert_trivial=True),
    )


@gluon.jit
def multiply_by_warps(
    hs, weights, low_weights, w_hh_ptr, w_hh_low_ptr, unit, k, H: gl.constexpr, EXACT: gl.constexpr,
    K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, UNITS: gl.constexpr, ROWS: gl.constexpr, K_WARPS: gl.constexpr,
    WARPS: gl.constexpr, mma: gl.constexpr, layout: gl.constexpr, own_layout: gl.constexpr, KEPT: gl.constexpr,
    LOW_KEPT: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """The product of h with each gate's weights."""
    zero = gl.zeros([K_WARPS, UNITS, ROWS], gl.float32, mma)
    totals = (zero, zero, zero, zero)
    for block in gl.static_range(K_BLOCKS):
        for gate in gl.static_range(4):
            w = gate_weights(weights, w_hh_ptr, gate, block, unit, k, H, EXACT, BLOCK_K, layout, KEPT)
            if SPLIT == 2:
                low = gate_weights(low_weights, w_hh_low_ptr, gate, block, unit, k, H, EXACT, BLOCK_K, layout, LOW_KEPT)
                product = mma_v2(low, hs[block], mma_v2(w, hs[K_BLOCKS + block], zero))
                totals = replaced(totals, gate, totals[gate] + mma_v2(w, hs[block], product))
            else:
                totals = replaced(totals, gate, mma_v2(w, hs[block], totals[gate]))
    if K_WARPS == 1:
        i = gl.sum(totals[0], axis=0)
        f = gl.sum(totals[1], axis=0)
        g = gl.sum(totals[2], axis=0)
        o = gl.sum(totals[3], axis=0)
    else:
        LANES: gl.constexpr = min(UNITS, 32)
        addends_layout: gl.constexpr = gl.BlockedLayout(
            [K_WARPS, 1, 1, 2, 2], [1, LANES, 32 // LANES, 1, 1], [1, 1, WARPS, 1, 1], [4, 3, 1, 2, 0]
        )
        four = gl.join(gl.join(totals[0], totals[1]), gl.join(totals[2], totals[3]))
        i_f, g_o = gl.split(gl.sum(gl.convert_layout(four, addends_layout), axis=0))
        i, f = gl.split(i_f)
        g, o = gl.split(g_o)
        i = gl.convert_layout(i, own_layout, assert_trivial=True)
        f = gl.convert_layout(f, own_layout, assert_trivial=True)
        g = gl.convert_layout(g, own_layout, assert_trivial=True)
        o = gl.convert_layout(o, own_layout, assert_trivial=True)
    return i, f, g, o


@gluon.jit
def weight_positions(
    UNITS: gl.constexpr, K_WARPS: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, layout: gl.constexpr
):
    """The units and the terms of the depth of each warp's first block of weights [K_WARPS, UNITS, BLOCK_K]."""
    warp = gl.arange(0, K_WARPS, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    units: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    unit = gl.program_id(0) * UNITS + gl.arange(0, UNITS, units)[None, :, None]
    block: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, layout))
    k = warp * (K_BLOCKS * BLOCK_K) + gl.arange(0, BLOCK_K, block)[None, None, :]
    return unit, k


@gluon.jit
def h_positions(
    n0, ROWS: gl.constexpr, K_WARPS: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, layout: gl.constexpr
):
    """The rows and the terms of the depth of each warp's first block of h [K_WARPS, BLOCK_K, ROWS]."""
    warp = gl.arange(0, K_WARPS, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    row = n0 + gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    block: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    k = warp * (K_BLOCKS * BLOCK_K) + gl.arange(0, BLOCK_K, block)[None, :, None]
    return row, k
