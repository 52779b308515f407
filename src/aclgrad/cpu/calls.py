"""Calls of C functions that follow each other without Python in between.

A launch on a GPU takes the host a few microseconds, Python around it several times as many. A recurrence whose steps
are launched one by one would wait for Python; here its launches are rows of a table that compiled code walks through.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .elements import I32, I64
from .threads import compile as compile_kernel

ARGUMENTS = 24
"""Words that every function is given: those it takes, and zeros that it does not look at."""

_WORDS = 1 + ARGUMENTS


@dataclass(frozen=True)
class CCall:
    """A C function `int(…)` of integers and addresses, 0 for success, and what it is called with.

    `advances` says by how much an argument, by its index, grows from one turn to the next.
    """

    function: int  # its address
    arguments: Sequence[int]
    advances: dict[int, int] = field(default_factory=dict)

    def row(self) -> list[int]:
        """The words of the table: where the function is, and what it is given in turn 0."""
        return [self.function, *self.arguments, *[0] * (ARGUMENTS - len(self.arguments))]

    def growth(self) -> list[int]:
        """By how much each word grows."""
        return [0, *(self.advances.get(index, 0) for index in range(ARGUMENTS))]


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


def _walk(
    _thread: int, _threads: int, clock: Any, status: Any, rows: int, growth: int, first: int, last: int,
    phases: int, calls: int,
) -> None:  # fmt: skip
    for step in range(first, last):
        clock[0] = step
        for call in range(calls):
            at = 8 * _WORDS * (step % phases * calls + call)
            status[0] = _call_row(rows + at, growth + at, step // phases)
            if status[0] != 0:
                return


def walk(phases: Sequence[Sequence[CCall]], clock: int, first: int, last: int) -> int:
    """Make the calls of phase `step % len(phases)` for each step of [first, last); the first status that is not 0.

    All phases have equally many calls. The number of the step is written to the 8 bytes at the address `clock`; the
    turn of a step is `step // len(phases)`.
    """
    rows = np.array([[call.row() for call in phase] for phase in phases], dtype=np.uint64)
    growth = np.array([[call.growth() for call in phase] for phase in phases], dtype=np.int64)
    status = ctypes.c_int64(0)
    kernel = compile_kernel(_walk, (torch.int64, torch.int64, *[int] * 6))
    kernel(
        1, clock, ctypes.addressof(status), rows.ctypes.data, growth.ctypes.data, first, last,
        len(phases), len(phases[0]),
    )  # fmt: skip
    return status.value
