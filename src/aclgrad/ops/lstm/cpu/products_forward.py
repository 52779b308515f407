"""What a layer's input gives the gates of a chunk of steps: x @ w_ihᵀ, one large product for all rows of the chunk.

The rows of a chunk count up in time, whichever way the direction goes. Where they lie evenly in memory they are packed
from there; rows of a batch-first array, and of sequences of different lengths, are collected first.
"""

from __future__ import annotations

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.gemm import share_grid
from aclgrad.cpu.lanes import pointer_at
from aclgrad.cpu.threads import share

from .access import at, multiply, pack, panels_of
from .recurrence_forward import GATES, chunk_times, copy_line, gates_line
from .runs import place_of, rows_until, valid_at
from .table import Field, Layer, View, view


@jit
def pack_input(layer: Layer, direction: int, start: int, end: int) -> None:
    """The thread's share of the input of a chunk, the steps [start, end), as A."""
    sizes, element = layer.sizes, layer.element
    first, last = chunk_times(layer, direction, start, end)
    rows = rows_until(layer, last) - rows_until(layer, first)
    p0, p1 = share(panels_of(rows, sizes.tall), 1, layer.thread, layer.threads)
    packed = view(layer, direction, Field.PACKED_SOURCE0).address
    collected = view(layer, direction, Field.COLLECTED)
    if collected.address != 0:
        collect(layer, direction, first, last, p0 * sizes.tall, min(p1 * sizes.tall, rows))
        pack(
            element, packed, collected.address, rows, collected.n, sizes.features, 1, sizes.tall, p0, p1,
            0, sizes.features,
        )  # fmt: skip
        return
    features = sizes.features // sizes.sources
    for index in range(sizes.sources):
        source = view(layer, direction, Field.SOURCE0 + index)
        origin = at(source, place_of(layer, first), 0, -index * features, element)
        pack(
            element, packed, origin, rows, source.n, sizes.features, source.k, sizes.tall, p0, p1,
            index * features, (index + 1) * features,
        )  # fmt: skip


@jit
def collect(layer: Layer, direction: int, first: int, last: int, r0: int, r1: int) -> None:
    """The rows [r0, r1) of the times [first, last), one after another, zero past a sequence's end.

    The input of the first layer counts as it is there, but then it lies evenly and is not collected.
    """
    sizes, element = layer.sizes, layer.element
    features = sizes.features // sizes.sources
    collected = view(layer, direction, Field.COLLECTED)
    for t in range(first, last):
        row = rows_until(layer, t) - rows_until(layer, first)
        end_row = rows_until(layer, t + 1) - rows_until(layer, first)
        valid = row + valid_at(layer, direction, t)
        for r in range(max(row, r0), min(end_row, r1)):
            for index in range(sizes.sources):
                to = at(collected, 0, r, index * features, element)
                if r < valid:
                    source: View = view(layer, direction, Field.SOURCE0 + index)
                    copy_line(features, at(source, t, r - row, 0, element), source.k, to, 1, element)
                else:
                    blank = pointer_at(to, element)
                    for k in range(features):
                        blank[k] = 0.0


@jit
def multiply_input(layer: Layer, direction: int, start: int, end: int) -> None:
    """The thread's share of a chunk's product."""
    sizes = layer.sizes
    first, last = chunk_times(layer, direction, start, end)
    rows = rows_until(layer, last) - rows_until(layer, first)
    a0, a1, b0, b1 = share_grid(panels_of(rows, sizes.tall), GATES * sizes.blocks, layer.thread, layer.threads)
    multiply(
        layer.real, view(layer, direction, Field.GATES).address, gates_line(layer),
        view(layer, direction, Field.PACKED_SOURCE0).address, view(layer, direction, Field.PACKED_IH).address,
        rows, gates_line(layer), sizes.features, sizes.tall, a0, a1, b0, b1, 0,
    )  # fmt: skip
