"""What the owners of rows do, and the products of split rows with split weights."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from aclgrad.gpu.dialect import async_load, barrier

from ...fp16_split.scale_gluon import LEAST_AMAX, magnitude, scaled, unscaled
from ..backward_step import STEPS_PER_SUM, add_gates, gate_gradients, load_step, mask_gradients, with_data

UNITS = gl.constexpr(64)  # of a program that multiplies


@gluon.jit
def load_weights(
    w_ptr, u0, H: gl.constexpr, K_BLOCKS: gl.constexpr, BLOCK_K: gl.constexpr, WARPS: gl.constexpr, STRIDE: gl.constexpr
):
    """The program's part of the high or the low part of w_hh in shared memory, block by block of the depth."""
    swizzled: gl.constexpr = gl.NVMMASharedLayout(min(2 * BLOCK_K, 128), 16, 2)
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [WARPS, 1], [1, 0])
    weights = gl.allocate_shared_memory(gl.float16, [K_BLOCKS, UNITS, BLOCK_K], swizzled)
    u = u0 + gl.arange(0, UNITS, gl.SliceLayout(1, layout))[:, None]
    k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))[None, :]
    for block in range(K_BLOCKS):
        weights.index(block).store(gl.load(w_ptr + u * STRIDE + k + block * BLOCK_K, mask=u < H, other=0.0))
    fence_async_shared()
    return weights


@gluon.jit
def copy_block(high, low, stage, high_src_ptr, low_src_ptr, exists, PRECISE: gl.constexpr):
    """Have a block of the depth of both parts copied into shared memory."""
    async_load(high.index(stage), high_src_ptr, mask=exists)
    if PRECISE:
        async_load(low.index(stage), low_src_ptr, mask=exists)
    async_copy.commit_group()


@gluon.jit
def multiply_rows(
    high_src_ptr, low_src_ptr, row_stride, count, w_high, w_low, high, low, ROWS: gl.constexpr, K_BLOCKS: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """w_hh · gate gradients of rows `row_stride` apart: [UNITS, ROWS], in scaled numbers."""
    SIDE: gl.constexpr = WARPS // 4
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, SIDE], [16, ROWS // SIDE, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_K, BLOCK_K // 8], [WARPS, 1], [1, 0])
    n = gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    at = n * row_stride + gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))[None, :]
    high_src_ptr += at
    low_src_ptr += at
    exists = n < count
    for block in gl.static_range(STAGES - 1):
        copy_block(
            high, low, block, high_src_ptr + block * BLOCK_K, low_src_ptr + block * BLOCK_K,
            exists & (block < K_BLOCKS), PRECISE,
        )  # fmt: skip
    total = gl.zeros([UNITS, ROWS], gl.float32, mma)
    for block in range(K_BLOCKS):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        ahead = block + STAGES - 1
        wanted = exists & (ahead < K_BLOCKS)
        copy_block(
            high, low, ahead % STAGES, high_src_ptr + ahead * BLOCK_K, low_src_ptr + ahead * BLOCK_K, wanted, PRECISE
        )
        arrived = high.index(block % STAGES).permute((1, 0))
        if PRECISE:  # a matrix unit cuts its sums off rather than rounding them, so these start from zero each time
            rest = low.index(block % STAGES).permute((1, 0))
            product = gl.zeros([UNITS, ROWS], gl.float32, mma)
            product = warpgroup_mma(w_high.index(block), rest, product, use_acc=False, is_async=True)
            product = warpgroup_mma(w_low.index(block), arrived, product, is_async=True)
            product = warpgroup_mma(w_high.index(block), arrived, product, is_async=True)
            total += warpgroup_mma_wait(0, deps=[product])
        else:
            total = warpgroup_mma(w_high.index(block), arrived, total, is_async=True)
            total = warpgroup_mma_wait(0, deps=[total])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def load_row(saved, dy_ptr, t, n, u, inside, saved_strides, dy_strides, batch_sizes_ptr, starts_ptr):
    """What step t of the forward direction reads for row n; see `load_step`."""
    i_ptr, f_ptr, g_ptr, o_ptr, tanhc_ptr, c_ptr = saved
    return load_step(
        i_ptr, f_ptr, g_ptr, o_ptr, tanhc_ptr, c_ptr, dy_ptr, t, t - 1, t == 0, n,
        n * saved_strides[1] + u * saved_strides[2], n * dy_strides[1] + u * dy_strides[3], inside, saved_strides[0],
        dy_strides[0], batch_sizes_ptr, starts_ptr,
    )  # fmt: skip


@gluon.jit
def sum_products(
    partial_ptr, own, u, inside, row_amax, w_hh_amax, H: gl.constexpr, ROWS: gl.constexpr, SPLIT_K: gl.constexpr
):
    """The products of a row, added up: the dh of the step before."""
    at = partial_ptr + own * H + u
    total = gl.load(at, mask=inside, other=0.0, cache_modifier=".cg")
    for k in gl.static_range(1, SPLIT_K):
        total += gl.load(at + k * (ROWS * H), mask=inside, other=0.0, cache_modifier=".cg")
    return unscaled(unscaled(total, row_amax), w_hh_amax)


@gluon.jit
def publish_row(
    dh, dc, loaded, c_init_ptr, c_init_strides, batch_sizes_ptr, starts_ptr, delta_high_ptr, delta_low_ptr,
    row_amax_ptr, step_offset, row_stride, t, n, u, exists, H: gl.constexpr, PRECISE: gl.constexpr,
):  # fmt: skip
    """Publish the gate gradients of a row at step t, split; returns them, the new dc and the row's amax."""
    inside = (u < H) & exists
    i, f, g, o, tanhc, c_prev, dy = loaded
    if t == 0:
        c_prev = gl.load(c_init_ptr + n * c_init_strides[1] + u * c_init_strides[2], mask=inside, other=0.0)
    di, df, dg, do, dc_new = gate_gradients(dh + dy, dc, i, f, g, o, tanhc, c_prev)
    if batch_sizes_ptr is not None:
        valid = gl.load(batch_sizes_ptr + t) > n
        di, df, dg, do, dc_new = mask_gradients(valid, di, df, dg, do, dc_new, dc)
    magnitudes = gl.maximum(gl.maximum(magnitude(di), magnitude(df)), gl.maximum(magnitude(dg), magnitude(do)))
    row_amax = gl.maximum(gl.max(gl.where(inside, magnitudes, 0), axis=0), LEAST_AMAX)
    row_offset = step_offset + n * row_stride
    written = with_data(inside, t, n, starts_ptr, batch_sizes_ptr)
    store_split(delta_high_ptr, delta_low_ptr, row_offset + u, scaled(di, row_amax), written, PRECISE)
    store_split(delta_high_ptr, delta_low_ptr, row_offset + H + u, scaled(df, row_amax), written, PRECISE)
    store_split(delta_high_ptr, delta_low_ptr, row_offset + 2 * H + u, scaled(dg, row_amax), written, PRECISE)
    store_split(delta_high_ptr, delta_low_ptr, row_offset + 3 * H + u, scaled(do, row_amax), written, PRECISE)
    exists = with_data(exists, t, n, starts_ptr, batch_sizes_ptr)
    gl.store(row_amax_ptr + row_offset // (4 * H), row_amax, mask=exists)
    return (
        gl.where(inside, di, 0.0),
        gl.where(inside, df, 0.0),
        gl.where(inside, dg, 0.0),
        gl.where(inside, do, 0.0),
        dc_new,
        row_amax,
    )


@gluon.jit
def flush_sums(sums_ptr, sum_i, sum_f, sum_g, sum_o, s, T, mask, H: gl.constexpr):
    """Every STEPS_PER_SUM steps, and after the last: add the sums to those before, and start from zero."""
    if (s % STEPS_PER_SUM == STEPS_PER_SUM - 1) | (s == T - 1):
        add_gates(sums_ptr, sum_i, sum_f, sum_g, sum_o, mask, s >= STEPS_PER_SUM, H)
        sum_i = gl.zeros_like(sum_i)
        sum_f = gl.zeros_like(sum_f)
        sum_g = gl.zeros_like(sum_g)
        sum_o = gl.zeros_like(sum_o)
    return sum_i, sum_f, sum_g, sum_o


@gluon.jit
def store_split(high_ptr, low_ptr, offset, x, inside, PRECISE: gl.constexpr):
    """Both parts of x, or the high one alone."""
    high = x.to(gl.float16)
    gl.store(high_ptr + offset, high, mask=inside)
    if PRECISE:
        gl.store(low_ptr + offset, (x - high.to(gl.float32)).to(gl.float16), mask=inside)
