"""Operands of any dtypes and strides for kernels that are compiled for one dtype and for neighbouring elements.

A kernel for every mix of dtypes and every layout would have to be compiled for each of them. So there is one for calls
whose operands have one dtype and lie side by side, which is what most bring. Whatever else comes is staged: tile by
tile, elements are converted into memory near the thread, in the dtype that the formula computes in, and results from
there to where they belong. The code that does so is compiled once for all kernels; they are given its address.

`near` is the dtype of an operand in the kernel, `far` where its elements belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compiler import entry, jit
from .elements import ELEMENTS, I8, I64
from .lanes import DTYPE_CODES, Pointer, address_of, emit_load, pointer_to
from .pointers import strides_of
from .procedures import call_at, named
from .tables import table

NEAR_BYTES = 32 << 10
"""Of a thread's stack, for the tiles of all staged operands: they stay in its first cache."""

MOST_BYTES = 16 << 10
"""Of one operand."""

HEAD = 6
"""Words of a table of loops before its loops; see `strided.elementwise`."""

AS_BITS = {dtype.itemsize: dtype for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64)}
"""Elements that are not converted are so many bytes."""

NOT_STAGED = -1
"""In place of the code of an operand's dtype."""

# The words at the head of what a kernel is told, then so many for every operand.
OPERANDS, TARGETS, STAGED_SOURCES, STAGED_TARGETS, FUNCTION, PER_OPERAND = range(6)
CODE, FAR_SIZE, NEAR_SIZE, WHOLE, PLACE, ROW = range(6)

Dtypes = Sequence["torch.dtype | None"]


def staged_in(dtypes: Dtypes) -> list[torch.dtype | None]:
    """For each operand the dtype in which it is staged; None for one that is absent.

    That of all floating-point operands if they have one in common, else float32 or float64, whichever loses nothing;
    and so it is with integers, in int64.
    """
    floats = {dtype for dtype in dtypes if dtype is not None and dtype.is_floating_point}
    whole = {dtype for dtype in dtypes if dtype is not None and not dtype.is_floating_point}
    wide = torch.float64 if torch.float64 in floats else torch.float32
    near = {
        True: floats.pop() if len(floats) == 1 else wide,
        False: whole.pop() if len(whole) == 1 else torch.int64,
    }
    return [None if dtype is None else near[dtype.is_floating_point] for dtype in dtypes]


def stage_size(near: Dtypes, staged: Sequence[bool]) -> int:
    """Elements of a tile that a thread has room for, of each staged operand."""
    sizes = [dtype.itemsize for dtype, is_staged in zip(near, staged, strict=True) if dtype is not None and is_staged]
    return min(NEAR_BYTES // len(sizes), MOST_BYTES) // max(sizes) // 16 * 16


class Staging:
    """What a kernel is told about its operands, of which some are staged; the targets come last.

    `strides` are the operands' from row to row, and a tile has so many `rows` and `columns`.
    """

    def __init__(
        self, dtypes: Dtypes, near: Dtypes, staged: Sequence[bool], targets: int, strides: Sequence[int], rows: int,
        columns: int,
    ) -> None:  # fmt: skip
        moves = [pair for pair, is_staged in zip(zip(near, dtypes, strict=True), staged, strict=True) if is_staged]
        same = all(far == close for close, far in moves)
        chains = (
            ((), (None, *AS_BITS.values())) if same else tuple(_chain(moves, is_float) for is_float in (True, False))
        )
        self._stage = stage(*chains)  # keeps it alive
        words: list[list[int]] = [[] for _ in range(ROW + 1)]
        place = 0
        for far, close, is_staged, stride in zip(dtypes, near, staged, strides, strict=True):
            moved = AS_BITS[far.itemsize] if same and far is not None else far
            words[CODE].append(DTYPE_CODES[moved] if is_staged and moved is not None else NOT_STAGED)
            words[FAR_SIZE].append(0 if far is None else far.itemsize)
            words[NEAR_SIZE].append(1 if close is None else close.itemsize)
            words[WHOLE].append(int(moved is not None and not moved.is_floating_point))
            words[PLACE].append(place)
            words[ROW].append(columns if is_staged else stride)
            place += rows * columns * close.itemsize if is_staged and close is not None else 0
        first = len(dtypes) - targets
        head = (len(dtypes), targets, sum(staged[:first]), sum(staged[first:]), self._stage.address)
        self._words = table([*head, *(word for some in words for word in some)])
        self.address = self._words.data_ptr()


def _chain(moves: Sequence[tuple[Any, Any]], is_float: bool) -> tuple[torch.dtype, ...]:
    """The near dtype of all staged operands of one kind, then what is converted to it and back."""
    pairs = {(near, far) for near, far in moves if near.is_floating_point == is_float}
    if not pairs:
        return ()
    near, _ = pairs.pop()
    return near, *(dtype for dtype in ELEMENTS if staged_in((dtype, near)) == [near, near])


@jit
def is_staged(staging: Any) -> Any:
    """Whether a kernel was told about staged operands."""
    return address_of(staging) != 0


@intrinsic
def near_places(typing: Any, staging: Any, pointers: Any) -> Any:
    """A pointer for every operand, like its own, into this call's stack."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        with builder.goto_entry_block():  # numba's own way to do this would fill it with zeros
            room = builder.alloca(ir.ArrayType(I8, NEAR_BYTES))
        room.align = 64
        values = []
        for k, pointer in enumerate(pointers.types):
            word = I64(PER_OPERAND + PLACE * len(pointers.types) + k)
            at = builder.gep(room, [I64(0), emit_load(context, builder, staging, args[0], word)])
            values.append(at if isinstance(pointer, Pointer) else context.get_dummy_value())
        return context.make_tuple(builder, pointers, values)

    return pointers(staging, pointers), emit


@jit
def near_strides(staging: Any, pointers: Any) -> Any:
    """How far the rows of a tile are apart, for every operand: near the thread if it is staged, else where it lies."""
    return strides_of(pointers, staging + (PER_OPERAND + ROW * len(pointers)))


@intrinsic
def addresses(typing: Any, pointers: Any) -> Any:
    """The address of an array, on this call's stack, of the pointers' addresses; 0 for None."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        room = cgutils.alloca_once(builder, ir.ArrayType(I64, len(pointers.types)))
        for k, pointer in enumerate(pointers.types):
            found = builder.ptrtoint(builder.extract_value(args[0], k), I64) if pointer != types.none else I64(0)
            builder.store(found, builder.gep(room, [I64(0), I64(k)]))
        return builder.ptrtoint(room, I64)

    return types.int64(pointers), emit


@intrinsic
def staged_or(typing: Any, staging: Any, near: Any, pointers: Any) -> Any:
    """Of every operand its place near the thread if it is staged, else the given pointer."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        values = []
        for k, pointer in enumerate(pointers.types):
            there, here = (builder.extract_value(value, k) for value in args[1:])
            if isinstance(pointer, Pointer):
                code = emit_load(context, builder, staging, args[0], I64(PER_OPERAND + k))
                there = builder.select(builder.icmp_signed("!=", code, I64(NOT_STAGED)), there, here)
            values.append(there)
        return context.make_tuple(builder, pointers, values)

    return pointers(staging, near, pointers), emit


@jit
def bring(staging: Any, begin: int, at: int, near: int, along: Any, down: Any, rows: int, columns: int) -> None:
    """Bring the sources of a tile near the thread.

    `begin`, `at` and `near` are the addresses of arrays of addresses: where the operands begin, where the tile would if
    they were of the near dtypes, and their places. `along` and `down` are the operands' strides.
    """
    if staging[STAGED_SOURCES] != 0:
        strides = (address_of(along), address_of(down))
        call_at(staging[FUNCTION], 0, address_of(staging), begin, at, near, strides[0], strides[1], rows, columns)


@jit
def bring_back(staging: Any, begin: int, at: int, near: int, along: Any, down: Any, rows: int, columns: int) -> None:
    """Bring what was written near the thread back to the targets; see `bring`."""
    if staging[STAGED_TARGETS] != 0:
        strides = (address_of(along), address_of(down))
        call_at(staging[FUNCTION], 1, address_of(staging), begin, at, near, strides[0], strides[1], rows, columns)


@jit
def _copy_matrix(
    to: Any, to_row: int, to_step: int, source: Any, from_row: int, from_step: int, rows: int, columns: int
) -> None:
    for r in range(rows):
        line, values = to + r * to_row, source + r * from_row
        if to_step == 1:
            if from_step == 1:
                for c in range(columns):
                    line[c] = values[c]
            elif from_step == 0:
                value = values[0]
                for c in range(columns):
                    line[c] = value
            else:
                for c in range(columns):
                    line[c] = values[c * from_step]
        else:
            for c in range(columns):
                line[c * to_step] = values[c]


@cache
def converter(near: torch.dtype | None, *dtypes: torch.dtype) -> Any:
    """`convert(code, back, far, row, step, place, pitch, rows, columns)`: a matrix, from far to near or `back`.

    Where no dtype is near, it is that of the far matrix.

    `far` is the address of its first element, of that one of the `dtypes` that has the code, and the others are `row`
    and `step` elements apart. `place` is that of the same matrix near, its rows `pitch` elements apart.
    """
    first, *others = dtypes
    far_pointer, near_pointer, mine = pointer_to(first), pointer_to(near or first), DTYPE_CODES[first]
    rest = converter(near, *others) if others else None

    def convert(
        code: int, back: int, far: int, row: int, step: int, place: int, pitch: int, rows: int, columns: int
    ) -> None:
        if code == mine:
            if back == 0:
                _copy_matrix(near_pointer(place), pitch, 1, far_pointer(far), row, step, rows, columns)
            else:
                _copy_matrix(far_pointer(far), row, step, near_pointer(place), pitch, 1, rows, columns)
        elif rest is not None:
            rest(code, back, far, row, step, place, pitch, rows, columns)

    return jit(named(convert, "_".join(("convert", str(near or "same"), *map(str, dtypes))).replace("torch.", "")))


@cache
def stage(*chains: tuple[torch.dtype | None, ...]) -> Any:
    """The compiled function that `bring` calls: `chains` are those of the floating-point and of the whole numbers."""
    floats, whole = (converter(*chain) if chain else None for chain in chains)
    words = pointer_to(torch.int64)

    def stage_tile(
        _thread: int, _threads: int, back: int, staging_at: int, begin_at: int, at_at: int, near_at: int,
        along_at: int, down_at: int, rows: int, columns: int,
    ) -> None:  # fmt: skip
        staging, begin, at, places = words(staging_at), words(begin_at), words(at_at), words(near_at)
        count, targets = staging[OPERANDS], staging[TARGETS]
        along, down = words(along_at), words(down_at)
        for k in range(count - targets if back != 0 else 0, count if back != 0 else count - targets):
            of = staging + (PER_OPERAND + k)
            code = of[CODE * count]
            if code != NOT_STAGED:
                far = begin[k] + (at[k] - begin[k]) // of[NEAR_SIZE * count] * of[FAR_SIZE * count]
                if floats is not None and of[WHOLE * count] == 0:
                    floats(code, back, far, down[k], along[k], places[k], of[ROW * count], rows, columns)
                if whole is not None and of[WHOLE * count] != 0:
                    whole(code, back, far, down[k], along[k], places[k], of[ROW * count], rows, columns)

    name = "_".join(("stage", *(str(dtype or "same") for chain in chains for dtype in chain))).replace("torch.", "")
    return entry(named(stage_tile, name), (int,) * 9)
