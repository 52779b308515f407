"""Kernels that a launch runs one after the other, with the places of their operands found in phase one.

An operand lies in one of the tensors of a call or somewhere in the workspace. Phase one says where, as an offset from
one of these; phase two has their addresses, and adds.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from operator import add, itemgetter
from typing import Any, NamedTuple

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..core.meta import Meta
from ..core.spec import Call
from .compiler import Word
from .elements import I64
from .tables import table
from .threads import Kernel, thread_count
from .threads import compile as compile_kernel
from .workspace import ThreadWorkspace


class Place(NamedTuple):
    """An address of phase two: bytes behind one of the `bases`."""

    base: int
    offset: int

    def at(self, offset: int) -> Place:
        """So many bytes further on."""
        return Place(self.base, self.offset + offset)


WORKSPACE = Place(0, 0)


class Step:
    """A kernel and the places of its first arguments; it knows the others (`Kernel.fixed`)."""

    __slots__ = ("_bases", "_kernel", "_offsets", "_places", "_start", "_threads")

    def __init__(self, kernel: Kernel, places: Sequence[Place], threads: ThreadWorkspace | None = None) -> None:
        """One thread runs it, or those whose `threads` have memory of their own where the first place is."""
        self._kernel, self._threads, self._start = kernel, threads, places[0].offset
        self._bases = itemgetter(*[place.base for place in places])
        self._offsets = [place.offset for place in places]
        self._places = places

    def __call__(self, bases: Sequence[int], room: int) -> None:
        """Run it; the workspace has `room` for so many bytes."""
        threads = 1 if self._threads is None else self._threads.threads_in(room - self._start)
        self._kernel(threads, *map(add, self._bases(bases), self._offsets))

    @property
    def work(self) -> tuple[int, int]:
        """Its work and the grain of that, see `thread_count`."""
        return (0, 1) if self._threads is None else (self._threads.work, self._threads.grain)

    def row(self) -> list[int]:
        """What `_walk` is told of it."""
        (code, known), places = self._kernel.words(), self._places
        return [code, len(places), len(known), *[number for place in places for number in place], *known]


@intrinsic
def _call_with(typing: Any, code: Any, block: Any) -> Any:
    """Call a kernel's C entry, at an address, with the argument block at another."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        entry = ir.FunctionType(ir.VoidType(), [I64.as_pointer()]).as_pointer()
        builder.call(builder.inttoptr(args[0], entry), [builder.inttoptr(args[1], I64.as_pointer())])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


_HEAD = len(Word)
_THREADS = int(Word.THREADS)


def _walk(_thread: int, _threads: int, block: Any, where: int, bases: Any, rows: Any, count: int) -> None:
    """Run `count` steps on this thread. The `block` is for their arguments; `where` is its address."""
    block[_THREADS] = 1
    at = 0
    for _ in range(count):
        code, places, known = rows[at], rows[at + 1], rows[at + 2]
        at += 3
        for k in range(places):
            block[_HEAD + k] = bases[rows[at + 2 * k]] + rows[at + 2 * k + 1]
        at += 2 * places
        for k in range(known):
            block[_HEAD + places + k] = rows[at + k]
        at += known
        _call_with(code, where)


class Chain:
    """Steps one after the other. Where one thread runs all of them, they are one call from Python."""

    __slots__ = ("_block", "_run", "_steps", "_table", "_work")

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._work = max((step.work for step in steps), key=lambda work: work[0] / work[1])
        rows = [step.row() for step in steps]
        self._table = table([word for row in rows for word in row])
        self._block = array("q", [0] * (_HEAD + max((row[1] + row[2] for row in rows), default=0)))
        signature = (torch.int64, int, torch.int64, torch.int64, int)
        self._run = compile_kernel(_walk, signature).fixed(self._table.data_ptr(), len(rows))

    def __call__(self, bases: Sequence[int], room: int) -> None:
        """Run them; the workspace has `room` for so many bytes."""
        if thread_count(*self._work) > 1:
            for step in self._steps:
                step(bases, room)
            return
        block = self._block[:]  # other calls may run at the same time
        start, given = block.buffer_info()[0], array("q", bases)
        self._run(1, start, start, given.buffer_info()[0])


class Bases:
    """The addresses that places begin at: the workspace's, then those of a call's tensors."""

    def __init__(self, call: Call) -> None:
        names = list(call.spec.params)
        self._positions = [k for k, name in enumerate(names) if isinstance(call[name], Meta)]
        self.places: Mapping[str, Place] = {names[k]: Place(1 + n, 0) for n, k in enumerate(self._positions)}

    def __call__(self, tensors: Sequence[Any], workspace: torch.Tensor) -> list[int]:
        """Of these arguments and outputs."""
        return [workspace.data_ptr(), *[tensors[k].data_ptr() for k in self._positions]]
