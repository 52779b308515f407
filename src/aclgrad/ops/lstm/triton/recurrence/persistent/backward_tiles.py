# mypy: ignore-errors
# ruff: noqa: RUF005, SIM108
# Gluon compiles these functions from their source: types follow the values, tuples grow by addition, and a condition
# that is known at compile time stands alone.
"""What the programs of a resident team do: products, meetings, reading what a step needs."""

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
from aclgrad.ops._shared import lstm_gates_triton

gate_gradients = gluon.jit(lstm_gates_triton.gate_gradients.fn)
LINE = gl.constexpr(32)  # words a counter has to itself
IN_REGISTERS, IN_SHARED, IN_MEMORY, WIDE = gl.constexpr(0), gl.constexpr(1), gl.constexpr(2), gl.constexpr(3)
SUMMED = gl.constexpr(64)  # steps whose gate gradients are summed before they are added to what was summed before
CHUNK = gl.constexpr(64)  # columns of gate gradients that a wide product takes at a time: 128 bytes


@gluon.jit
def high(x):
    """X rounded to the leading bits that a matrix unit reads of a float32."""
    return ((x.to(gl.int32, bitcast=True) + 0x1000) & -0x2000).to(gl.float32, bitcast=True)


@gluon.jit
def multiply(w, d, total, PRECISE: gl.constexpr):
    """Add w @ d to a total.

    A precise product of float32 is made of three, of the leading and the remaining bits. A matrix unit cuts its sums
    off rather than rounding them, so these begin anew each time.
    """
    if w.dtype != gl.float32:
        total = mma_v2(w, d, total)
    elif PRECISE:
        w_high = high(w)
        d_high = high(d)
        fresh = mma_v2(w_high, d - d_high, gl.zeros_like(total), input_precision="tf32")
        fresh = mma_v2(w - w_high, d_high, fresh, input_precision="tf32")
        total += mma_v2(w_high, d_high, fresh, input_precision="tf32")
    else:
        total = mma_v2(w, d, total, input_precision="tf32")
    return total


@gluon.jit
def arrive(counter):
    """Tell the others that what this program has written is there."""
    barrier()
    gl.atomic_add(counter, 1, sem="release")


@gluon.jit
def wait_for(counter, arrivals):
    """Until so many have arrived; what they had written can then be read."""
    there = seen(counter)
    while there < arrivals:
        there = seen(counter)


@gluon.jit
def wait_alone_for(counter, arrivals):
    """The same, but one thread looks for all of the program: fewer looks are in the way of those who arrive."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        .reg .b32 thread;
        mov.u32 thread, %tid.x;
        setp.ne.u32 p, thread, 0;
        @p bra TOGETHER;
        LOOK:
        ld.acquire.gpu.global.b32 $0, [$1];
        setp.lt.s32 p, $0, $2;
        @p bra LOOK;
        TOGETHER:
        bar.sync 0;
        }""",
        "=&r,l,r",
        [counter, arrivals],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def seen(counter):
    """The counter, in order with the reads that follow."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [counter], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def fetch(i, f, g, o, tanhc, c, dy, t, before, first, at, upstream, mine, saved_t, dy_t):
    """What step t reads of its saved activations and of dy; `before` is the step that c_prev is taken from."""
    here = t.to(gl.int64) * saved_t
    there = before.to(gl.int64) * saved_t
    y = gl.zeros_like(mine.to(gl.float32))
    if dy is not None:
        y = gl.load(dy + t.to(gl.int64) * dy_t + upstream, mask=mine, other=0.0)
    return (
        gl.load(i + here + at, mask=mine, other=0.0),
        gl.load(f + here + at, mask=mine, other=0.0),
        gl.load(g + here + at, mask=mine, other=0.0),
        gl.load(o + here + at, mask=mine, other=0.0),
        gl.load(tanhc + here + at, mask=mine, other=0.0),
        gl.load(c + there + at, mask=mine & (first == 0), other=0.0),
        y,
    )


@gluon.jit
def state(pointer, of, reverse, n, u, mine):
    """Dh or dc as given, infinities as NaN; zeros where it is not."""
    value = gl.zeros_like(mine.to(gl.float32))
    if pointer is not None:
        value = gl.load(pointer + reverse * of[0] + n * of[1] + u * of[2], mask=mine, other=0.0).to(gl.float32)
    return value + 0.0 * value


@gluon.jit
def replaced(values, AT: gl.constexpr, value):
    """The tuple with another value at AT."""
    out = ()
    for k in gl.static_range(len(values)):
        if k == AT:
            out = out + (value,)
        else:
            out = out + (values[k],)
    return out


@gluon.jit
def within(exists, k, K: gl.constexpr, EXACT: gl.constexpr):
    """Which elements of an operand exist; only the last of the K columns may be missing."""
    if not EXACT:
        exists = exists & (k < K)
    return exists


@gluon.jit
def resident_weights(pointer, exists, k, K: gl.constexpr, EXACT: gl.constexpr, SUBS: gl.constexpr, WARPS: gl.constexpr,
                     UNITS: gl.constexpr, DEEP: gl.constexpr, VECTOR: gl.constexpr, PLACE: gl.constexpr):  # fmt: skip
    """Take this program's part of w_hh into shared memory or registers; nothing where it is read every step."""
    if PLACE == IN_SHARED:
        layout: gl.constexpr = gl.SwizzledSharedLayout(VECTOR, 1, 8, [2, 1, 0])
        weights = gl.allocate_shared_memory(pointer.dtype.element_ty, [SUBS, WARPS, UNITS, DEEP], layout)
        for sub in gl.static_range(SUBS):
            mask = within(exists, k + sub * DEEP, K, EXACT)
            weights.index(sub).store(gl.load(pointer + sub * DEEP, mask=mask, other=0.0))
    else:
        weights = ()
        if PLACE == IN_REGISTERS:
            for sub in gl.static_range(SUBS):
                mask = within(exists, k + sub * DEEP, K, EXACT)
                weights = weights + (gl.load(pointer + sub * DEEP, mask=mask, other=0.0),)
    return weights


@gluon.jit
def wide_weights(w_hh, u0, k0, H: gl.constexpr, UNITS: gl.constexpr, COUNT: gl.constexpr, WARPS: gl.constexpr):
    """Take this program's part of w_hh in shared memory, as a warpgroup multiplies it."""
    dtype: gl.constexpr = w_hh.dtype.element_ty
    weights = gl.allocate_shared_memory(dtype, [COUNT, UNITS, CHUNK], gl.NVMMASharedLayout(128, 16, 2))
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    u = u0 + gl.arange(0, UNITS, gl.SliceLayout(1, layout))[:, None]
    k = k0 + gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    for chunk in range(COUNT):
        weights.index(chunk).store(gl.load(w_hh + u * (4 * H) + k + chunk * CHUNK, mask=u < H, other=0.0))
    fence_async_shared()
    return weights


@gluon.jit
def wide_product(now, n0, N, row_of, k0, weights, stages, UNITS: gl.constexpr, ROWS: gl.constexpr, COUNT: gl.constexpr,
                 STAGES: gl.constexpr, WARPS: gl.constexpr):  # fmt: skip
    """Weights @ gate gradients of ROWS rows, these passing through shared memory in chunks."""
    SIDE: gl.constexpr = WARPS // 4
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, SIDE], [16, ROWS // SIDE, 16])
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    n = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    k = k0 + gl.arange(0, CHUNK, gl.SliceLayout(0, layout))[None, :]
    source = now + n * row_of + k
    for chunk in gl.static_range(STAGES - 1):
        if chunk < COUNT:
            async_load(stages.index(chunk), source + chunk * CHUNK, mask=n < N)
        async_copy.commit_group()
    total = gl.zeros([UNITS, ROWS], gl.float32, mma)
    for chunk in range(COUNT):
        async_copy.wait_group(STAGES - 2)
        fence_async_shared()
        barrier()
        later = chunk + STAGES - 1
        if later < COUNT:
            async_load(stages.index(later % STAGES), source + later * CHUNK, mask=n < N)
        async_copy.commit_group()
        arrived = stages.index(chunk % STAGES).permute((1, 0))
        total = warpgroup_mma(weights.index(chunk), arrived, total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    async_copy.wait_group(0)
    barrier()
    return total


@gluon.jit
def multiply_resident(now, exists, k, weights, w_pointer, w_exists, w_k, UNITS: gl.constexpr, ROWS: gl.constexpr,
                      K: gl.constexpr, EXACT: gl.constexpr, SUBS: gl.constexpr, DEEP: gl.constexpr,
                      WARPS: gl.constexpr, mma: gl.constexpr, w_layout: gl.constexpr, PLACE: gl.constexpr,
                      PRECISE: gl.constexpr):  # fmt: skip
    """Every warp's sum over its rows of w_hh: [WARPS, UNITS, ROWS]."""
    total = gl.zeros([WARPS, UNITS, ROWS], gl.float32, mma)
    for sub in gl.static_range(SUBS):
        mask = within(exists, k + sub * DEEP, K, EXACT)
        d = gl.load(now + k + sub * DEEP, mask=mask, other=0.0, cache_modifier=".cg")
        if PLACE == IN_SHARED:
            w = weights.index(sub).load(w_layout)
        elif PLACE == IN_REGISTERS:
            w = weights[sub]
        else:
            w_mask = within(w_exists, w_k + sub * DEEP, K, EXACT)
            w = gl.load(w_pointer + sub * DEEP, mask=w_mask, other=0.0)
        total = multiply(w, d, total, PRECISE)
    return total


@gluon.jit
def only(valid, di, df, dg, do, dc_new, dc):
    """The gradients where there is data; elsewhere none, and dc as it was."""
    return (
        gl.where(valid, di, 0.0),
        gl.where(valid, df, 0.0),
        gl.where(valid, dg, 0.0),
        gl.where(valid, do, 0.0),
        gl.where(valid, dc_new, dc),
    )


@gluon.jit
def put_state(pointer, of, reverse, n, u, mine, value):
    """dh_prev or dc_prev, where it is wanted."""
    if pointer is not None:
        gl.store(pointer + reverse * of[0] + n * of[1] + u * of[2], value.to(pointer.dtype.element_ty), mask=mine)


@gluon.jit
def put_four(pointer, i, f, g, o, mask, STEP: gl.constexpr):
    """One value for each gate, STEP apart."""
    dtype: gl.constexpr = pointer.dtype.element_ty
    gl.store(pointer, i.to(dtype), mask=mask)
    gl.store(pointer + STEP, f.to(dtype), mask=mask)
    gl.store(pointer + 2 * STEP, g.to(dtype), mask=mask)
    gl.store(pointer + 3 * STEP, o.to(dtype), mask=mask)


@gluon.jit
def add_four(pointer, i, f, g, o, mask, there, STEP: gl.constexpr):
    """Add one value for each gate to what is there, if anything is."""
    before = mask & there
    i += gl.load(pointer, mask=before, other=0.0)
    f += gl.load(pointer + STEP, mask=before, other=0.0)
    g += gl.load(pointer + 2 * STEP, mask=before, other=0.0)
    o += gl.load(pointer + 3 * STEP, mask=before, other=0.0)
    put_four(pointer, i, f, g, o, mask, STEP)
