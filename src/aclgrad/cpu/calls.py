"""Calls of C functions that follow each other without Python in between.

A launch on a GPU takes the host a few microseconds, Python around it several times as many. So the calls that an
operator makes, or a recurrence in each of its steps, are rows of a table that compiled code walks through. Where memory
lies may be left open in the table: it is said anew whenever the calls are made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .elements import I32, I64
from .lanes import pointer_to
from .threads import compile as compile_kernel

ARGUMENTS = 24
"""Words that every function is given: those it takes, and zeros that it does not look at."""

_WORDS = 1 + ARGUMENTS


class Placed(NamedTuple):
    """A word that lies open: one of the bases that are given when the calls are made, and what is added to it."""

    base: int
    offset: int = 0


Word: TypeAlias = "int | Placed"


@dataclass(frozen=True)
class CCall:
    """A C function `int(…)` of integers and addresses, 0 for success, and what it is called with.

    `advances` says by how much an argument, by its index, grows from one turn to the next.
    """

    function: int  # its address
    arguments: Sequence[Word]
    advances: Mapping[int, int] = field(default_factory=dict)

    def row(self) -> list[Word]:
        """The words of the table: where the function is, and what it is given in turn 0."""
        return [self.function, *self.arguments, *[0] * (ARGUMENTS - len(self.arguments))]

    def growth(self) -> list[int]:
        """By how much each word grows."""
        return [0, *(self.advances.get(index, 0) for index in range(ARGUMENTS))]


class Steps(NamedTuple):
    """The calls of phase `step % len(phases)` for each step of [first, last); all phases have equally many.

    The number of the step is written to the 8 bytes at the address `clock`, unless that is 0. The turn of a step is
    `step // len(phases)`.
    """

    phases: Sequence[Sequence[CCall]]
    clock: int = 0
    first: int = 0
    last: int = 1


@intrinsic
def _call_row(typing: Any, row: Any, growth: Any, turn: Any) -> Any:
    """Call the function that a row begins with; every word has grown by its growth as often as turns have passed."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        at, by = (builder.inttoptr(address, I64.as_pointer()) for address in args[:2])
        words = []
        for k in range(_WORDS):
            start, grown = (builder.load(builder.gep(pointer, [I64(k)])) for pointer in (at, by))
            words.append(builder.add(start, builder.mul(grown, args[2])))
        function = ir.FunctionType(I32, [I64] * ARGUMENTS).as_pointer()
        return builder.sext(builder.call(builder.inttoptr(words[0], function), words[1:]), I64)

    return types.int64(types.int64, types.int64, types.int64), emit


_word_at = pointer_to(torch.int64)
_OF_PLACE, _OF_PART = 3, 7  # words that describe a place, and some steps


def _walk(
    _thread: int, _threads: int, bases: Any, status: Any, places: Any, parts: Any, place_count: int, part_count: int
) -> None:
    for k in range(place_count):
        place = _OF_PLACE * k
        _word_at(places[place])[0] = bases[places[place + 1]] + places[place + 2]
    for k in range(part_count):
        part = _OF_PART * k
        rows, growth, clock = parts[part], parts[part + 1], parts[part + 2]
        phases, calls = parts[part + 5], parts[part + 6]
        for step in range(parts[part + 3], parts[part + 4]):
            if clock != 0:
                _word_at(clock)[0] = step
            for call in range(calls):
                at = 8 * _WORDS * (step % phases * calls + call)
                status[0] = _call_row(rows + at, growth + at, step // phases)
                if status[0] != 0:
                    return


class CallTable:
    """Calls made ready once, to be made any number of times with other bases."""

    def __init__(
        self, parts: Sequence[Steps], bases: int = 0, places: Sequence[tuple[int, Placed]] = (), memory: object = None
    ) -> None:
        """`bases` is how many there are; `places` are words in `memory` that lie open as well, by their addresses."""
        self._memory = memory
        open_words = list(places)
        described: list[int] = []
        self._rows = []  # must stay alive, as all that follows
        for phases, clock, first, last in parts:
            rows = [word for phase in phases for call in phase for word in call.row()]
            table = np.array([0 if isinstance(word, Placed) else word for word in rows], dtype=np.uint64)
            growth = np.array([call.growth() for phase in phases for call in phase], dtype=np.int64)
            start = table.ctypes.data
            open_words += [(start + 8 * k, word) for k, word in enumerate(rows) if isinstance(word, Placed)]
            described += [start, growth.ctypes.data, clock, first, last, len(phases), len(phases[0])]
            self._rows.append((table, growth))
        self._parts = np.array(described, dtype=np.int64)
        self._places = np.array([(at, *place) for at, place in open_words], dtype=np.int64)
        self._bases: Any = (ctypes.c_uint64 * max(bases, 1))()
        self._status = ctypes.c_int64(0)
        self._one_at_a_time = Lock()
        kernel = compile_kernel(_walk, (*[torch.int64] * 4, int, int))
        self._run = kernel.fixed(
            ctypes.addressof(self._bases), ctypes.addressof(self._status), self._places.ctypes.data,
            self._parts.ctypes.data, len(open_words), len(parts),
        )  # fmt: skip

    def run(self, bases: list[int] | None = None) -> int:
        """Make the calls; the first status that is not 0."""
        with self._one_at_a_time:  # compiled code lets go of the interpreter's lock
            if bases:
                self._bases[:] = bases
            self._status.value = 0
            self._run(1)
            return self._status.value
