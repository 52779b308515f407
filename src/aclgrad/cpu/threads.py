"""Run kernels on the thread pool that torch itself computes with.

Two pools on the same cores fight: a thread of one spins while the other's work waits for its core. So a kernel runs
inside `GOMP_parallel` of the very OpenMP library that libtorch_cpu is linked to. Where there is none, they are
plain Python threads, which run compiled code in parallel because ctypes lets go of the interpreter lock.

A kernel runs on one thread, called directly, or on as many as torch uses: OpenMP ends the surplus threads of a smaller
group and torch would pay for creating them again. A kernel with less work leaves threads idle (see `share`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from copy import copy
from functools import cache
from threading import Thread
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..core.words import counted
from .compiler import THREAD_GROUP as THREAD_GROUP
from .compiler import Signature, Word, entry, group_size, jit, packing, word
from .elements import I64
from .openmp import address, openmp

HEADER = struct.Struct(f"={len(Word)}q")
ALONE = HEADER.pack(0, 1, 0, 0, 0, 0)


@cache
def _yielding() -> int:
    """Address of the function by which a waiting thread offers its core to others."""
    if sys.platform == "win32":
        return address(ctypes.WinDLL("kernel32").SwitchToThread)
    return address(ctypes.CDLL(None).sched_yield)


_BarrierCounters = ctypes.c_int64 * 2


class Kernel:
    """A compiled kernel. `kernel(threads, *args)` runs it on that many threads and returns when all are done.

    Arguments are Python numbers; pointers are addresses (`Tensor.data_ptr()`). Arguments that the signature describes
    by None or THREAD_GROUP are not passed. May be called from several threads at once.
    """

    __slots__ = ("_address", "_alone", "_code", "_format", "_pack", "_tail")

    def __init__(self, function: Any, signature: Signature) -> None:
        self._code = entry(function, signature)  # keeps the machine code alive
        self._address = self._code.address
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self._address)
        self._format = packing(signature)
        self._pack, self._tail = struct.Struct(self._format).pack, b""

    def fixed(self, *last: float) -> Kernel:
        """The kernel with its last arguments given: those that a plan knows are packed once."""
        made = copy(self)
        size = len(self._format) - len(last)  # a letter each, behind one for the byte order
        made._format = self._format[:size]
        made._tail = struct.Struct(f"={self._format[size:]}").pack(*last) + self._tail
        made._pack = struct.Struct(made._format).pack
        return made

    def words(self) -> tuple[int, list[int]]:
        """Where its code is, and its last arguments, those that are given, as words."""
        return self._address, list(struct.unpack(f"={len(self._tail) // 8}q", self._tail))

    def __call__(self, threads: int, *args: float) -> None:
        """Run on `threads` threads, this one among them."""
        packed = self._pack(*args) + self._tail
        if threads == 1:
            self._alone(ALONE + packed)
            return
        counters = _BarrierCounters()
        library = openmp()
        if library is None:
            self._python_threads(threads, ctypes.addressof(counters), packed)
        else:
            head = HEADER.pack(-1, 0, library.thread, library.threads, ctypes.addressof(counters), _yielding())
            library.parallel(self._address, head + packed, threads, 0)

    def _python_threads(self, threads: int, counters: int, args: bytes) -> None:
        blocks = [HEADER.pack(index, threads, 0, 0, counters, _yielding()) + args for index in range(threads)]
        helpers = [Thread(target=self._alone, args=(block,)) for block in blocks[1:]]
        for helper in helpers:
            helper.start()
        self._alone(blocks[0])
        for helper in helpers:
            helper.join()


@cache
def compile(function: Any, signature: Signature) -> Kernel:  # noqa: A001  # here it means nothing else
    """Compile `function(thread, threads, *args)` for arguments described by `signature`, e.g. `(int, torch.float16)`.

    The result is kept in memory and its machine code on disk.
    """
    return Kernel(function, signature)


def thread_count(work: int, grain: int) -> int:
    """How many threads to run on: one if there is less than two grains of work, else all that torch uses."""
    return 1 if work < 2 * grain else torch.get_num_threads()


def threads_in_words(work: int, grain: int) -> str:
    """How many threads would run now."""
    return counted(thread_count(work, grain), "thread")


@jit
def share(count: int, grain: int, thread: int, threads: int) -> tuple[int, int]:
    """The part [first, last) of `count` items that falls to a thread, cut at multiples of `grain`."""
    grains = (count + grain - 1) // grain
    first = grains * thread // threads * grain
    last = grains * (thread + 1) // threads * grain
    return min(first, count), min(last, count)


@intrinsic(prefer_literal=True)
def _field(typing: Any, group: Any, index: Any) -> Any:
    """A word of the running threads' argument block."""
    position = index.literal_value

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return word(builder, args[0], position)

    return types.int64(group, index), emit


@intrinsic
def _call(typing: Any, function: Any) -> Any:
    """Call the C function `void(void)` at an address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.call(builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), ()).as_pointer()), ())
        return context.get_dummy_value()

    return types.void(function), emit


@intrinsic
def _fetch_add(typing: Any, address: Any, amount: Any) -> Any:
    """Atomically add to the counter at an address; its value before. All memory is ordered around it."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        counter = builder.inttoptr(args[0], I64.as_pointer())
        return builder.atomic_rmw("add", counter, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def _fetch(typing: Any, address: Any) -> Any:
    """The counter at an address; what was written before it was last changed is visible afterwards."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), emit


PATIENCE = 1000
"""How often a thread looks before it offers its core to others; a few microseconds at most."""

_BARRIER, _YIELD = int(Word.BARRIER), int(Word.YIELD)


@jit
def barrier(group: Any) -> None:
    """Wait until every thread of the group is here; all they wrote before is visible to all afterwards.

    Not OpenMP's barrier: that one spins for milliseconds when another process holds the core of a thread it waits for.
    """
    threads = group_size(group)
    if threads == 1:
        return
    arrived = _field(group, _BARRIER)
    rounds = arrived + 8
    current = _fetch(rounds)
    if _fetch_add(arrived, 1) == threads - 1:
        _fetch_add(arrived, -threads)
        _fetch_add(rounds, 1)
        return
    looks = 0
    while _fetch(rounds) == current:
        looks += 1
        if looks > PATIENCE:
            _call(_field(group, _YIELD))
