"""Weight and bias gradients: from panels of the transposed ones to rows, in the tensors that hold them.

The gradients of all steps are summed chunk by chunk in a transposed matrix as large as the weights. Where one chunk has
all steps nothing is summed up: each thread then multiplies a panel of its columns and turns it back while it is in
cache, in a slot of its own.
"""

from __future__ import annotations

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import pointer_at
from aclgrad.cpu.threads import share

from .access import at, bytes_of, multiply, pack, panels_of
from .products_backward import write_row
from .runs import Chunk
from .table import Field, Layer, View, view

TURN = 16  # features that are turned back to rows at a time


@jit
def write_params(layer: Layer, direction: int) -> None:
    """The thread's share of the weight and bias gradients that chunks have added up, panel by panel."""
    dw = view(layer, direction, Field.DW)
    if dw.address == 0 or dw.k > 0:
        return
    begin, last = share(4 * layer.sizes.blocks, 1, layer.thread, layer.threads)
    for panel in range(begin, last):
        write_panel(layer, direction, panel, dw.address + panel * layer.sizes.width * bytes_of(layer.real))


@jit
def multiply_panels(layer: Layer, chunk: Chunk) -> None:
    """The thread's share of the weight and bias gradients of the only chunk; a slot for each thread, or some idle."""
    sizes, real, d = layer.sizes, layer.real, chunk.direction
    dw = view(layer, d, Field.DW)
    if dw.address == 0 or dw.k == 0 or layer.thread >= dw.k:
        return
    slot = dw.address + layer.thread * dw.n * bytes_of(real)
    begin, last = share(4 * sizes.blocks, 1, layer.thread, min(layer.threads, dw.k))
    for panel in range(begin, last):
        gates = view(layer, d, Field.DELTA).address + panel * chunk.rows * sizes.width * bytes_of(real)
        features = sizes.features // sizes.sources
        for source in range(sizes.sources):
            packed = view(layer, d, Field.PACKED_SOURCE0 + source).address
            multiply_panel(layer, chunk, packed, features, sizes.source_height, gates, slot, source * features)
        packed = view(layer, d, Field.PACKED_STATE).address
        multiply_panel(layer, chunk, packed, sizes.hidden, sizes.state_height, gates, slot, sizes.features)
        write_panel(layer, d, panel, slot)


@jit
def multiply_panel(
    layer: Layer, chunk: Chunk, packed: int, count: int, height: int, gates: int, slot: int, first: int
) -> None:
    """Rows [first, first + count) of one panel of the transposed weight gradients."""
    width, real = layer.sizes.width, layer.real
    target = slot + first * width * bytes_of(real)
    down = panels_of(count, height)
    multiply(real, target, width, packed, gates, count, width, chunk.rows, height, 0, down, 0, 1, 0)


@jit
def write_panel(layer: Layer, direction: int, panel: int, block: int) -> None:
    """What follows from a panel of columns of the transposed gradients, which begins at the address `block`."""
    sizes = layer.sizes
    sums = view(layer, direction, Field.DB)
    first = panel % sizes.blocks * sizes.width
    count = min(sizes.width, sizes.hidden - first)
    row = panel // sizes.blocks * sizes.hidden + first
    below = block + sizes.features * view(layer, direction, Field.DW).t * bytes_of(layer.real)
    turn_back(layer, direction, panel, row, count, block, sizes.features, view(layer, direction, Field.DW_IH))
    turn_back(layer, direction, panel, row, count, below, sizes.hidden, view(layer, direction, Field.DW_HH))
    if sums.address != 0:
        source = pointer_at(sums.address + panel * sizes.width * bytes_of(layer.wide), layer.wide)
        for name in (Field.DB_IH, Field.DB_HH):
            bias = view(layer, direction, name)
            target = pointer_at(at(bias, 0, 0, row, layer.element), layer.element)
            for k in range(count):
                target[k * bias.k] = source[k]


@jit
def turn_back(
    layer: Layer, direction: int, panel: int, row: int, count: int, block: int, features: int, target: View
) -> None:
    """Rows [row, row + count) of a weight gradient, from columns of the transposed one that begin at `block`."""
    sizes, real = layer.sizes, layer.real
    line = view(layer, direction, Field.DW).t
    if bytes_of(layer.element) == bytes_of(real) and target.k == 1 and target.n >= features:
        rows = at(target, 0, row, 0, real)
        pack(real, rows, block, features, line, count, 1, target.n, 0, 1, 0, count)
        return
    tile = view(layer, direction, Field.TURNED).address + panel * sizes.width * TURN * bytes_of(real)
    for begin in range(0, features, TURN):
        some = min(TURN, features - begin)
        source = block + begin * line * bytes_of(real)
        pack(real, tile, source, some, line, count, 1, TURN, 0, 1, 0, count)
        for r in range(count):
            to = at(target, 0, row + r, begin, layer.element)
            write_row(layer, some, tile + r * TURN * bytes_of(real), to, target.k, False)
