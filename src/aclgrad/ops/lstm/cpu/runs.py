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
def mark_anew(layer: Layer, direction: int) -> None:
    """The thread's share of which rows start a time from zeros: those reset before it, as the direction goes.

    A reset lies between a time and the one before. Past a sequence's end it means nothing.
    """
    sizes, reset, anew = layer.sizes, view(layer, direction, Field.RESET), view(layer, direction, Field.ANEW)
    begin, last = share(sizes.steps if anew.address != 0 else 0, 1, layer.thread, layer.threads)
    for t in range(begin, last):
        later = t + direction
        rows = min(valid_at(layer, direction, t), valid_at(layer, direction, later)) if later < sizes.steps else 0
        flags = pointer_at(anew.address + t * anew.t, layer.words)
        for n in range(sizes.batch):
            flags[n] = flag_at(reset.address + later * reset.t + n * reset.n) if n < rows else 0


@jit
def starts_anew(layer: Layer, direction: int, t: int, n: int) -> bool:
    """Whether a row starts a time from zeros."""
    anew = view(layer, direction, Field.ANEW)
    if anew.address == 0:
        return False
    marked: bool = pointer_at(anew.address + t * anew.t, layer.words)[n] != 0
    return marked


@jit
def rows_before(layer: Layer, direction: int, step: int) -> int:
    """Rows of gate gradients before a step."""
    rows: int = pointer_at(view(layer, direction, Field.ROWS_BEFORE).address, layer.words)[step]
    return rows


@jit
def parts(layer: Layer) -> int:
    """Into how many parts the rows are cut, so that directions x parts x blocks share out evenly.

    Best is a part that one thread owns with all its blocks: then nobody waits for anybody within a recurrence. But
    every thread reads all of w_hh then, at each step, which has to be near or serve many rows.
    """
    sizes = layer.sizes
    alone = layer.threads // 2 if sizes.directions == 2 and layer.threads % 2 == 0 else layer.threads
    most = panels_of(sizes.panels, alone)
    near = 4 * sizes.hidden * sizes.hidden * bytes_of(layer.real) <= NEAR_BYTES
    if alone <= sizes.panels and 8 * most * alone <= 9 * sizes.panels and (near or most >= MANY_PANELS):
        return alone
    items, cut = sizes.directions * sizes.blocks, 1
    while cut < sizes.panels and cut * items % layer.threads != 0 and cut * items < 8 * layer.threads:
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
