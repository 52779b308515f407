"""Who computes what: the rows and hidden units of a thread, and the steps and times that it takes them through.

A step of either pass needs all hidden units of the step before, for its own units alone. So a thread owns some rows and
blocks of hidden units for the whole recurrence, and waits for the others once a step unless it owns all blocks of its
rows. Who owns what does not change a single bit.
"""

from __future__ import annotations

from typing import NamedTuple

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import pointer_at
from aclgrad.cpu.threads import share

from .access import bytes_of, flag_at, panels_of
from .table import Field, Layer, View, view

NEAR_BYTES = 1 << 20  # a level-2 cache
MANY_PANELS = 4


class Chunk(NamedTuple):
    """The steps [start, end) of a direction of the gradient, and where their rows of gate gradients begin."""

    direction: int
    start: int
    end: int
    first_row: int
    rows: int


class Run(NamedTuple):
    """Neighbouring blocks [b0, b1) of hidden units of one direction, and panels [p0, p1) of rows."""

    direction: int
    p0: int
    p1: int
    b0: int
    b1: int


@jit
def time_of(layer: Layer, direction: int, step: int) -> int:
    """The time index that the backward pass of a direction visits at a step."""
    return layer.sizes.steps - 1 - step if direction == 0 else step


@jit
def valid_rows(layer: Layer, direction: int, step: int) -> int:
    """How many sequences are as long as the time of a step."""
    count: int = valid_at(layer, direction, time_of(layer, direction, step))
    return count


@jit
def valid_at(layer: Layer, direction: int, t: int) -> int:
    """How many sequences are as long as a time: they are the first ones of the batch."""
    batch_sizes = view(layer, direction, Field.BATCH_SIZES)
    if batch_sizes.address == 0:
        return layer.sizes.batch
    count: int = pointer_at(batch_sizes.address, layer.words)[t * batch_sizes.t]
    return min(max(count, 0), layer.sizes.batch)


@jit
def count_rows(layer: Layer, padding: bool) -> None:
    """Count the rows that are computed before each time, those without data only with `padding`."""
    if layer.thread == 0:
        rows = pointer_at(view(layer, 0, Field.ROWS_UNTIL).address, layer.words)
        rows[0] = 0
        for t in range(layer.sizes.steps):
            rows[t + 1] = rows[t] + (layer.sizes.batch if padding else valid_at(layer, 0, t))


@jit
def rows_until(layer: Layer, t: int) -> int:
    """Rows that are computed before a time."""
    rows: int = pointer_at(view(layer, 0, Field.ROWS_UNTIL).address, layer.words)[t]
    return rows


@jit
def place_of(layer: Layer, t: int) -> int:
    """The index along t of a time: of packed sequences its first row's, else the time itself."""
    place: int = rows_until(layer, t) if layer.sizes.packed == 1 else t
    return place


@jit
def mark_anew(layer: Layer, direction: int) -> None:
    """The thread's share of which rows start a time from zeros: those reset before it, as the direction goes.

    A reset lies between a time and the one before. Past a sequence's end it means nothing.
    """
    sizes, reset, anew = layer.sizes, view(layer, direction, Field.RESET), view(layer, direction, Field.ANEW)
    begin, last = share(sizes.steps if anew.address != 0 else 0, 1, layer.thread, layer.threads)
    place, later_place = begin, begin + direction
    if sizes.packed == 1:  # places are still being counted
        place = 0
        for t in range(begin):
            place += valid_at(layer, direction, t)
    for t in range(begin, last):
        later, here = t + direction, valid_at(layer, direction, t)
        rows = min(here, valid_at(layer, direction, later)) if later < sizes.steps else 0
        if sizes.packed == 1:
            later_place = place + here * direction
        flags = pointer_at(anew.address + place * anew.t, layer.words)
        for n in range(here if sizes.packed == 1 else sizes.batch):
            flags[n] = flag_at(reset.address + later_place * reset.t + n * reset.n) if n < rows else 0
        place += here if sizes.packed == 1 else 1
        later_place += 1


@jit
def starts_anew(layer: Layer, direction: int, t: int, n: int) -> bool:
    """Whether a row that has data at a time starts it from zeros."""
    anew = view(layer, direction, Field.ANEW)
    if anew.address == 0:
        return False
    marked: bool = pointer_at(anew.address + place_of(layer, t) * anew.t, layer.words)[n] != 0
    return marked


@jit
def rows_before(layer: Layer, direction: int, step: int) -> int:
    """Rows of gate gradients before a step."""
    steps = layer.sizes.steps
    first, last = (steps - step, steps) if direction == 0 else (0, step)
    rows: int = rows_until(layer, last) - rows_until(layer, first)
    return rows


@jit
def chunk_end(layer: Layer, start: int, forward: bool) -> int:
    """The step behind the last one of the chunk that begins at a step: as many as no direction has too many rows for.

    A direction of the forward pass has the rows that the other one has going back.
    """
    end = min(start + 1, layer.sizes.steps)
    while end < layer.sizes.steps:
        for direction in range(layer.sizes.directions):
            way = 1 - direction if forward else direction
            if rows_before(layer, way, end + 1) - rows_before(layer, way, start) > layer.sizes.capacity:
                return end
        end += 1
    return end


@jit
def chunk_of(layer: Layer, direction: int, start: int, end: int) -> Chunk:
    """A direction's part of the chunk of the steps [start, end)."""
    first_row = rows_before(layer, direction, start)
    return Chunk(direction, start, end, first_row, rows_before(layer, direction, end) - first_row)


@jit
def parts(layer: Layer) -> int:
    """Into how many parts the rows are cut, so that directions x parts x blocks share out evenly.

    Best is a part that one thread owns with all its blocks: then nobody waits for anybody within a recurrence. But
    every thread reads all of w_hh then, at each step, which has to be near or serve many rows.
    """
    sizes = layer.sizes
    alone = layer.threads // 2 if sizes.directions == 2 and layer.threads % 2 == 0 else layer.threads
    most = panels_of(sizes.busy, alone)
    near = 4 * sizes.hidden * sizes.hidden * bytes_of(layer.real) <= NEAR_BYTES
    if alone <= sizes.busy and 8 * most * alone <= 9 * sizes.busy and (near or most >= MANY_PANELS):
        return alone
    items, cut = sizes.directions * sizes.blocks, 1
    while cut < sizes.busy and cut * items % layer.threads != 0 and cut * items < 8 * layer.threads:
        cut += 1
    return cut


@jit
def is_shared(layer: Layer) -> bool:
    """Whether threads need each other's results within a recurrence, and so must wait at each step."""
    shared: bool = layer.sizes.directions * parts(layer) % layer.threads != 0
    return shared


@jit
def owned(layer: Layer) -> tuple[int, int]:
    """The items (direction, part of the rows, block) that the thread owns."""
    items = layer.sizes.directions * parts(layer) * layer.sizes.blocks
    mine: tuple[int, int] = share(items, 1, layer.thread, layer.threads)
    return mine


@jit
def run_at(layer: Layer, item: int, last: int) -> Run:
    """The run that begins at an item and ends before `last`."""
    sizes, cut = layer.sizes, parts(layer)
    p0, p1 = share(sizes.panels, 1, item // sizes.blocks % cut, cut)
    b0 = item % sizes.blocks
    return Run(item // (cut * sizes.blocks), p0, p1, b0, min(sizes.blocks, b0 + last - item))


@jit
def packed_step(layer: Layer, direction: int, step: int) -> int:
    """Where a step leaves its gate gradients for the step after; the slowest thread may still read those before."""
    packed: View = view(layer, direction, Field.PACKED_STEP)
    return packed.address + step % 2 * packed.t
