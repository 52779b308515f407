# mypy: ignore-errors
# ruff: noqa: RUF005
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""What the programs of a resident team do in the forward pass: weights, products, reading and writing."""

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

from ...fp16_split import products
from ..per_step import forward_kernel as per_step
from .backward_tiles import CHUNK, IN_REGISTERS, IN_SHARED, replaced, resident_weights, within

unscaled = gluon.jit(products.unscaled.fn)
put, save, stepped = (gluon.jit(function.fn) for function in (per_step.put, per_step.save, per_step.stepped))
HIDDEN_SCALE = per_step.HIDDEN_SCALE


@gluon.jit
def over_scale(peak):
    """1 over the scale of a matrix with this peak; 1 for one that was not taken apart."""
    scale = 1.0
    if peak is not None:
        scale = unscaled(1.0, gl.load(peak))
    return scale


@gluon.jit
def gate_weights(w_hh, unit, k, H: gl.constexpr, EXACT: gl.constexpr, SUBS: gl.constexpr, DEPTHS: gl.constexpr,
                 UNITS: gl.constexpr, DEEP: gl.constexpr, VECTOR: gl.constexpr, KEPT: gl.constexpr):  # fmt: skip
    """The rows of w_hh that make each of the four gates of these units: KEPT pieces in registers, others in shared."""
    REST: gl.constexpr = SUBS - KEPT
    weights = ()
    if w_hh is not None and KEPT >= 0:
        for gate in gl.static_range(4):
            at = w_hh + (gate * H + unit) * H + k
            here = resident_weights(at, unit < H, k, H, EXACT, KEPT, DEPTHS, UNITS, DEEP, VECTOR, IN_REGISTERS)
            there = ()
            if REST > 0:
                there = resident_weights(
                    at + KEPT * DEEP, unit < H, k + KEPT * DEEP, H, EXACT, REST, DEPTHS, UNITS, DEEP, VECTOR, IN_SHARED
                )
            weights = weights + ((here, there),)
    return weights


@gluon.jit
def weights_of(weights, w_hh, gate: gl.constexpr, sub: gl.constexpr, unit, k, H: gl.constexpr, EXACT: gl.constexpr,
               DEEP: gl.constexpr, layout: gl.constexpr, KEPT: gl.constexpr):  # fmt: skip
    """One gate's weights for a piece of the depth, from where they are."""
    if KEPT < 0:
        mask = within(unit < H, k + sub * DEEP, H, EXACT)
        w = gl.load(w_hh + (gate * H + unit) * H + k + sub * DEEP, mask=mask, other=0.0)
    elif sub < KEPT:
        w = weights[gate][0][sub]
    else:
        w = weights[gate][1].index(sub - KEPT).load(layout)
    return w


@gluon.jit
def read_hidden(at, exists, k, plane, WIDTH: gl.constexpr, EXACT: gl.constexpr, SUBS: gl.constexpr, DEEP: gl.constexpr,
                PARTS: gl.constexpr):  # fmt: skip
    """All that a thread multiplies of h: every piece of the depth, then the low parts of them."""
    ds = ()
    for part in gl.static_range(PARTS):
        for sub in gl.static_range(SUBS):
            mask = within(exists, k + sub * DEEP, WIDTH, EXACT)
            ds = ds + (gl.load(at + part * plane + sub * DEEP, mask=mask, other=0.0, cache_modifier=".cg"),)
    return ds


@gluon.jit
def parts_of(h, dtype: gl.constexpr, SCALED: gl.constexpr, PARTS: gl.constexpr):
    """H as it is multiplied: rounded, or taken apart into a high and, if precise, a low part."""
    if SCALED:
        scaled = h * HIDDEN_SCALE
        high = scaled.to(gl.float16)
        parts = (high,)
        if PARTS == 2:
            parts = parts + ((scaled - high.to(gl.float32)).to(gl.float16),)
    else:
        parts = (h.to(dtype),)
    return parts


@gluon.jit
def initial(pointer, of, reverse, n, u, mine):
    """A state as given, or zeros."""
    value = gl.zeros_like(mine.to(gl.float32))
    if pointer is not None:
        value = gl.load(pointer + reverse * of[0] + n * of[1] + u * of[2], mask=mine, other=0.0).to(gl.float32)
    return value


@gluon.jit
def fetch(gates, t, at, sizes, mine, gates_t, H: gl.constexpr):
    """What the layer's input gave for step t, and how many rows it has."""
    here = gates + t.to(gl.int64) * gates_t + at
    rows = 0
    if sizes is not None:
        rows = gl.load(sizes + t)
    return (
        gl.load(here, mask=mine, other=0.0),
        gl.load(here + H, mask=mine, other=0.0),
        gl.load(here + 2 * H, mask=mine, other=0.0),
        gl.load(here + 3 * H, mask=mine, other=0.0),
        rows,
    )


@gluon.jit
def gate_biases(bias, u, H: gl.constexpr):
    """Of the four gates of these units, or zeros."""
    biases = (0.0, 0.0, 0.0, 0.0)
    if bias is not None:
        biases = (
            gl.load(bias + u, mask=u < H, other=0.0),
            gl.load(bias + H + u, mask=u < H, other=0.0),
            gl.load(bias + 2 * H + u, mask=u < H, other=0.0),
            gl.load(bias + 3 * H + u, mask=u < H, other=0.0),
        )
    return biases


@gluon.jit
def opened(a_i, a_f, a_g, a_o, opening, s, begun, reverse, n, u, sizes, mine, N, H: gl.constexpr):
    """The gates with what an initial state gives them, in rows that start from it at step s."""
    if opening is not None:
        first = mine & (s == 0)
        if sizes is not None:
            first = mine & (begun == 0)
        o_i, o_f, o_g, o_o, _ = fetch(opening, reverse, n * (4 * H) + u, None, first, N * 4 * H, H)
        a_i += o_i
        a_f += o_f
        a_g += o_g
        a_o += o_o
    return a_i, a_f, a_g, a_o


@gluon.jit
def wide_weights(w_hh, w_low, u0, H: gl.constexpr, UNITS: gl.constexpr, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """The gates of these units in shared memory for warpgroups: row 4 · unit + gate, low parts below."""
    weights = gl.allocate_shared_memory(
        w_hh.dtype.element_ty, [H // CHUNK, 4 * UNITS * PARTS, CHUNK], gl.NVMMASharedLayout(128, 16, 2)
    )
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    row = gl.arange(0, 4 * UNITS * PARTS, gl.SliceLayout(1, layout))[:, None]
    unit = u0 + row % (4 * UNITS) // 4
    at = ((row % 4) * H + unit) * H + gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    for chunk in range(H // CHUNK):
        w = gl.load(w_hh + at + chunk * CHUNK, mask=(unit < H) & (row < 4 * UNITS), other=0.0)
        if PARTS == 2:
            w += gl.load(w_low + at + chunk * CHUNK, mask=(unit < H) & (row >= 4 * UNITS), other=0.0)
        weights.index(chunk).store(w)
    fence_async_shared()
    return weights


@gluon.jit
def wide_product(h, plane, n0, N, weights, stages, H: gl.constexpr, GATES: gl.constexpr, ROWS: gl.constexpr,
                 PARTS: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr):  # fmt: skip
    """Weights @ h of ROWS rows, all parts of it, these passing through shared memory in chunks.

    In two parts, a sum begins anew now and then: matrix units cut sums off rather than rounding them.
    """
    COUNT: gl.constexpr = H // CHUNK
    AHEAD: gl.constexpr = STAGES - 2  # one chunk is being multiplied, one may still be
    PIECE: gl.constexpr = 2 if PARTS == 2 else COUNT
    DOWN: gl.constexpr = min(WARPS, GATES // 16)
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [DOWN, WARPS // DOWN], [16, ROWS * DOWN // WARPS, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    n = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    source = h + n * H + gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    for first in gl.static_range(AHEAD):
        if first < PARTS * COUNT:
            at = source + first % COUNT * CHUNK + first // COUNT * plane
            async_load(stages.index(first), at, mask=n < N)
        async_copy.commit_group()
    total = gl.zeros([GATES, ROWS], gl.float32, mma)
    for piece in range(0, PARTS * COUNT, PIECE):
        fresh = gl.zeros([GATES, ROWS], gl.float32, mma)
        for chunk in range(piece, min(piece + PIECE, PARTS * COUNT)):
            async_copy.wait_group(AHEAD - 1)
            fence_async_shared()
            barrier()
            later = chunk + AHEAD
            if later < PARTS * COUNT:
                there = source + later % COUNT * CHUNK + later // COUNT * plane
                async_load(stages.index(later % STAGES), there, mask=n < N)
            async_copy.commit_group()
            arrived = stages.index(chunk % STAGES).permute((1, 0))
            fresh = warpgroup_mma(weights.index(chunk % COUNT), arrived, fresh, is_async=True)
            fresh = warpgroup_mma_wait(1, deps=[fresh])
        total += warpgroup_mma_wait(0, deps=[fresh])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def gates_apart(total, UNITS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, WARPS: gl.constexpr,
                cell: gl.constexpr):  # fmt: skip
    """The four gates of a wide product."""
    LANES: gl.constexpr = min(UNITS, 32)
    quads: gl.constexpr = gl.BlockedLayout([4, 1], [LANES, 32 // LANES], [1, WARPS], [0, 1])
    four = gl.permute(gl.reshape(gl.convert_layout(total, quads), [PARTS, UNITS, 2, 2, ROWS]), (1, 4, 2, 3, 0))
    if PARTS == 2:
        high, low = gl.split(four)
        even, odd = gl.split(high + low)
    else:
        even, odd = gl.split(gl.sum(four, axis=4))
    i, g = gl.split(even)
    f, o = gl.split(odd)
    return (
        gl.convert_layout(i, cell, assert_trivial=True),
        gl.convert_layout(f, cell, assert_trivial=True),
        gl.convert_layout(g, cell, assert_trivial=True),
        gl.convert_layout(o, cell, assert_trivial=True),
    )


@gluon.jit
def gate_products(ds, weights, lows, w_hh, w_low, unit, k, H: gl.constexpr, EXACT: gl.constexpr, SUBS: gl.constexpr,
                  DEEP: gl.constexpr, UNITS: gl.constexpr, ROWS: gl.constexpr, DEPTHS: gl.constexpr,
                  WARPS: gl.constexpr, mma: gl.constexpr, layout: gl.constexpr, cell: gl.constexpr,
                  KEPT: gl.constexpr, LOW_KEPT: gl.constexpr, PARTS: gl.constexpr):  # fmt: skip
    """The product of h with each gate's weights."""
    zero = gl.zeros([DEPTHS, UNITS, ROWS], gl.float32, mma)
    totals = (zero, zero, zero, zero)
    for sub in gl.static_range(SUBS):
        for gate in gl.static_range(4):
            w = weights_of(weights, w_hh, gate, sub, unit, k, H, EXACT, DEEP, layout, KEPT)
            if PARTS == 2:
                low = weights_of(lows, w_low, gate, sub, unit, k, H, EXACT, DEEP, layout, LOW_KEPT)
                fresh = mma_v2(low, ds[sub], mma_v2(w, ds[SUBS + sub], zero))
                totals = replaced(totals, gate, totals[gate] + mma_v2(w, ds[sub], fresh))
            else:
                totals = replaced(totals, gate, mma_v2(w, ds[sub], totals[gate]))
    if DEPTHS == 1:
        i = gl.sum(totals[0], axis=0)
        f = gl.sum(totals[1], axis=0)
        g = gl.sum(totals[2], axis=0)
        o = gl.sum(totals[3], axis=0)
    else:
        LANES: gl.constexpr = min(UNITS, 32)
        gathered: gl.constexpr = gl.BlockedLayout(
            [DEPTHS, 1, 1, 2, 2], [1, LANES, 32 // LANES, 1, 1], [1, 1, WARPS, 1, 1], [4, 3, 1, 2, 0]
        )
        four = gl.join(gl.join(totals[0], totals[1]), gl.join(totals[2], totals[3]))
        i_f, g_o = gl.split(gl.sum(gl.convert_layout(four, gathered), axis=0))
        i, f = gl.split(i_f)
        g, o = gl.split(g_o)
        i = gl.convert_layout(i, cell, assert_trivial=True)
        f = gl.convert_layout(f, cell, assert_trivial=True)
        g = gl.convert_layout(g, cell, assert_trivial=True)
        o = gl.convert_layout(o, cell, assert_trivial=True)
    return i, f, g, o
