"""The large products of a chunk of steps, while its gate gradients are warm.

The gate gradients lie as panels of B (see `recurrence_backward.py`), so the weight gradients come out transposed:
dwᵀ = [x | h_prev]ᵀ @ gates, with the layer's input and the previous states packed from wherever they lie. For
dx = gates @ w_ih they are packed once more, as A. Whatever is packed is made NaN where it was infinite.
"""

from __future__ import annotations

from typing import Any

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.gemm import share_grid
from aclgrad.cpu.lanes import apart, pointer_at
from aclgrad.cpu.threads import share

from .access import at, bytes_of, multiply, pack, panels_of
from .runs import Chunk, place_of, rows_before, starts_anew, time_of, valid_at
from .table import Field, Layer, View, view


@jit
def undefine_infinite(address: int, count: int, real: Any) -> None:
    """NaN for Inf: a sum of products is then NaN as soon as one of its terms is."""
    values = pointer_at(address, real)
    for k in range(count):
        values[k] = values[k] + (values[k] - values[k])


@jit
def pack_chunk(layer: Layer, chunk: Chunk) -> None:
    """The thread's share of what the products multiply, and of the bias gradient."""
    sizes, d = layer.sizes, chunk.direction
    if view(layer, d, Field.DW).address != 0:
        for source in range(sizes.sources):
            values, packed = view(layer, d, Field.SOURCE0 + source), view(layer, d, Field.PACKED_SOURCE0 + source)
            features = sizes.features // sizes.sources
            pack_transposed(layer, chunk, values, False, packed.address, features, sizes.source_height)
        states, packed = view(layer, d, Field.H), view(layer, d, Field.PACKED_STATE)
        pack_transposed(layer, chunk, states, True, packed.address, sizes.hidden, sizes.state_height)
    if view(layer, d, Field.DB).address != 0:
        add_bias(layer, chunk)
    if view(layer, d, Field.DX_ROWS).address != 0:
        pack_delta(layer, chunk)


@jit
def pack_transposed(
    layer: Layer, chunk: Chunk, values: View, previous: bool, packed: int, count: int, height: int
) -> None:
    """`count` features of a chunk of `values`, or with `previous` of the states its steps started from, as A."""
    d, element = chunk.direction, layer.element
    begin, last = share(panels_of(count, height), 1, layer.thread, layer.threads)
    start = view(layer, d, Field.H0)
    for step in range(chunk.start, chunk.end):
        source, t = values, time_of(layer, d, step + 1 if previous else step)
        if previous and step + 1 == layer.sizes.steps:
            source, t = start, 0
        row = rows_before(layer, d, step) - chunk.first_row
        end_row = rows_before(layer, d, step + 1) - chunk.first_row
        going_on = end_row
        if layer.sizes.packed == 1 and previous and step + 1 < layer.sizes.steps:
            going_on = min(end_row, row + valid_at(layer, d, t))
        origin = at(source, place_of(layer, t), -row, 0, element)
        pack(element, packed, origin, count, source.k, chunk.rows, source.n, height, begin, last, row, going_on)
        if going_on < end_row:
            origin = at(start, 0, -row, 0, element)
            pack(element, packed, origin, count, start.k, chunk.rows, start.n, height, begin, last, going_on, end_row)
    panel = chunk.rows * height
    undefine_infinite(packed + begin * panel * bytes_of(layer.real), (last - begin) * panel, layer.real)
    if not previous or view(layer, d, Field.ANEW).address == 0:
        return
    for step in range(chunk.start, chunk.end):
        row = rows_before(layer, d, step) - chunk.first_row
        count_rows = rows_before(layer, d, step + 1) - chunk.first_row - row
        for n in range(count_rows):
            if starts_anew(layer, d, time_of(layer, d, step), n):
                for p in range(begin, last):
                    first = (p * chunk.rows + row + n) * height
                    lanes = pointer_at(packed + first * bytes_of(layer.real), layer.real)
                    for lane in range(height):
                        lanes[lane] = 0.0


@jit
def add_bias(layer: Layer, chunk: Chunk) -> None:
    """Column sums of the gate gradients."""
    width, real, wide = layer.sizes.width, layer.real, layer.wide
    delta, db = view(layer, chunk.direction, Field.DELTA), view(layer, chunk.direction, Field.DB)
    begin, last = share(4 * layer.sizes.blocks, 1, layer.thread, layer.threads)
    for panel in range(begin, last):
        sums = apart(pointer_at(db.address + panel * width * bytes_of(wide), wide), 0)
        for k in range(width if chunk.start == 0 else 0):
            sums[k] = 0.0
        for row in range(chunk.rows):
            line = apart(pointer_at(delta.address + (panel * chunk.rows + row) * width * bytes_of(real), real), 1)
            for k in range(width):
                sums[k] = sums[k] + line[k]


@jit
def pack_delta(layer: Layer, chunk: Chunk) -> None:
    """The thread's share of the gate gradients as A."""
    sizes, real, rows = layer.sizes, layer.real, chunk.rows
    delta, packed = view(layer, chunk.direction, Field.DELTA), view(layer, chunk.direction, Field.PACKED_DELTA)
    p0, p1 = share(panels_of(rows, sizes.tall), 1, layer.thread, layer.threads)
    for gate in range(4):
        for block in range(sizes.blocks):
            k0 = gate * sizes.hidden + block * sizes.width
            k1 = min(k0 + sizes.width, (gate + 1) * sizes.hidden)
            source = delta.address + ((gate * sizes.blocks + block) * rows * sizes.width - k0) * bytes_of(real)
            pack(real, packed.address, source, rows, sizes.width, 4 * sizes.hidden, 1, sizes.tall, p0, p1, k0, k1)


@jit
def multiply_chunk(layer: Layer, chunk: Chunk) -> None:
    """The thread's share of the chunk's rows of dx, and of its part of dw where several chunks add to that."""
    sizes, d = layer.sizes, chunk.direction
    dw = view(layer, d, Field.DW)
    if dw.address != 0 and dw.k == 0:
        features = sizes.features // sizes.sources
        for source in range(sizes.sources):
            packed = view(layer, d, Field.PACKED_SOURCE0 + source).address
            add_product(layer, chunk, packed, source * features, features, sizes.source_height)
        packed = view(layer, d, Field.PACKED_STATE).address
        add_product(layer, chunk, packed, sizes.features, sizes.hidden, sizes.state_height)
    product = view(layer, d, Field.DX_ROWS).address
    if product != 0:
        a_panels, b_panels = panels_of(chunk.rows, sizes.tall), panels_of(sizes.features, sizes.width)
        a0, a1, b0, b1 = share_grid(a_panels, b_panels, layer.thread, layer.threads)
        multiply(
            layer.real, product, sizes.features, view(layer, d, Field.PACKED_DELTA).address,
            view(layer, d, Field.PACKED_IH).address, chunk.rows, sizes.features, 4 * sizes.hidden, sizes.tall,
            a0, a1, b0, b1, 0,
        )  # fmt: skip
        k0, k1 = b0 * sizes.width, min(b1 * sizes.width, sizes.features)
        write_dx(layer, chunk, product, a0 * sizes.tall, a1 * sizes.tall, k0, k1)


@jit
def add_product(layer: Layer, chunk: Chunk, packed: int, first: int, count: int, height: int) -> None:
    """Rows [first, first + count) of the transposed weight gradients."""
    sizes, d = layer.sizes, chunk.direction
    line = view(layer, d, Field.DW).t
    a0, a1, b0, b1 = share_grid(panels_of(count, height), 4 * sizes.blocks, layer.thread, layer.threads)
    multiply(
        layer.real, view(layer, d, Field.DW).address + first * line * bytes_of(layer.real), line,
        packed, view(layer, d, Field.DELTA).address, count, line, chunk.rows, height,
        a0, a1, b0, b1, 1 if chunk.start > 0 else 0,
    )  # fmt: skip


@jit
def write_dx(layer: Layer, chunk: Chunk, product: int, r0: int, r1: int, k0: int, k1: int) -> None:
    """Round the rows [r0, r1) of the product into dx; the direction that comes second adds in dx's own dtype."""
    sizes, d = layer.sizes, chunk.direction
    dx = view(layer, d, Field.DX)
    for step in range(chunk.start, chunk.end):
        row = rows_before(layer, d, step) - chunk.first_row
        end_row = rows_before(layer, d, step + 1) - chunk.first_row
        second = sizes.directions == 2 and sizes.steps - 1 - step < (chunk.end if d == 1 else chunk.start)
        place = place_of(layer, time_of(layer, d, step))
        for r in range(max(row, r0), min(end_row, r1)):
            line = product + (r * sizes.features + k0) * bytes_of(layer.real)
            target = at(dx, place, r - row, k0, layer.element)
            write_row(layer, k1 - k0, line, target, dx.k, second)


@jit
def write_row(layer: Layer, count: int, source: int, target: int, stride: int, adds: bool) -> None:
    """Round a row in place, from wide elements to narrower ones in the same memory, and put it where it belongs."""
    real, rounded = pointer_at(source, layer.real), pointer_at(source, layer.element)
    for k in range(count):
        rounded[k] = real[k]
    values, to = apart(rounded, 0), apart(pointer_at(target, layer.element), 1)
    if adds:
        for k in range(count):
            to[k * stride] = to[k * stride] + values[k]
    elif stride == 1:
        for k in range(count):
            to[k] = values[k]
    else:
        for k in range(count):
            to[k * stride] = values[k]
