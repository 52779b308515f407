"""The grid barrier: a counter in memory that programs of a persistent grid add to when they arrive, and poll."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from aclgrad.gpu.dialect import barrier

COUNTER_WORDS = gl.constexpr(32)  # a counter has a cache line to itself


@gluon.jit
def arrive(counter_ptr):
    """Signal that what this program has written is there."""
    barrier()
    gl.atomic_add(counter_ptr, 1, sem="release")


@gluon.jit
def wait_for(counter_ptr, arrivals):
    """Until so many have arrived; what they had written can then be read."""
    arrived = load_acquire(counter_ptr)
    while arrived < arrivals:
        arrived = load_acquire(counter_ptr)


@gluon.jit
def wait_for_by_one_thread(counter_ptr, arrivals):
    """The same, but one thread polls for all of the program: fewer loads are in the way of those who arrive."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        .reg .b32 thread;
        mov.u32 thread, %tid.x;
        setp.ne.u32 p, thread, 0;
        @p bra TOGETHER;
        POLL:
        ld.acquire.gpu.global.b32 $0, [$1];
        setp.lt.s32 p, $0, $2;
        @p bra POLL;
        TOGETHER:
        bar.sync 0;
        }""",
        "=&r,l,r",
        [counter_ptr, arrivals],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def load_acquire(counter_ptr):
    """The counter, in order with the reads that follow."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [counter_ptr], dtype=gl.int32, is_pure=False, pack=1
    )
