"""The large products around the recurrence, chunk by chunk while the gate gradients are warm, and all inputs and outputs.

Gate gradients of a chunk lie as panels of B (see `cpu_loop`), so that the weight gradients come out transposed,
dwᵀ = [x | h_prev]ᵀ @ gates, with the layer's input and the previous states packed from wherever they lie; dx = gates @ w_ih
takes the same gradients packed once more, as A. Whatever is packed is made NaN where it was infinite.
"""

from __future__ import annotations

from typing import Any

from ...cpu.compiler import jit
from ...cpu.gemm import share_grid
from ...cpu.lanes import pointer_at
from ...cpu.threads import share
from .cpu_access import apart, at, bytes_of, multiply, pack
from .cpu_loop import recur, row_of, time_of, valid_rows
from .cpu_table import Field, Sizes, View, sizes_of, view

TURN = 16  # features that are turned back to rows at a time


@jit
def prepare(thread: int, threads: int, words: Any, element: Any, real: Any) -> None:
    """Pack the weights, lay out the rows of gate gradients, take over dh and dc, and clear what no step will write."""
    sizes = sizes_of(words)
    for direction in range(sizes.directions):
        for weight, packed, columns in (
            (Field.W_HH, Field.PACKED_HH, sizes.hidden),
            (Field.W_IH, Field.PACKED_IH, sizes.features),
        ):
            target = view(words, direction, packed).address
            if target != 0:
                pack_weight(thread, threads, view(words, direction, weight), target, columns, sizes, element, real)
        if thread == 0:
            rows = pointer_at(view(words, direction, Field.ROW_OF_STEP).address, words)
            rows[0] = 0
            for step in range(sizes.steps):
                rows[step + 1] = rows[step] + valid_rows(words, sizes, direction, step)
        take_state(thread, threads, words, direction, Field.DH, Field.STATE_DH, element, real)
        take_state(thread, threads, words, direction, Field.DC, Field.STATE_DC, element, real)
    zeros = pointer_at(view(words, 0, Field.ZEROS).address, element)
    for k in range(sizes.hidden if thread == 0 else 0):
        zeros[k] = 0.0
    dx = view(words, 0, Field.DX)
    if dx.address != 0:
        begin, end = share(sizes.steps, 1, thread, threads)
        for step in range(begin, end):
            for n in range(valid_rows(words, sizes, 0, step), sizes.batch):
                row = pointer_at(at(dx, time_of(sizes, 0, step), n, 0, bytes_of(element)), element)
                for k in range(sizes.features):
                    row[k * dx.k] = 0.0


@jit
def pack_weight(
    thread: int, threads: int, weight: View, target: int, columns: int, sizes: Sizes, element: Any, real: Any
) -> None:
    """A thread's share of a weight [4H, columns] as B."""
    depth = 4 * sizes.hidden
    begin, end = share((columns + sizes.width - 1) // sizes.width, 1, thread, threads)
    pack(element, target, weight.address, columns, weight.k, depth, weight.n, sizes.width, begin, end, 0, depth)
    panel = depth * sizes.width
    undefine_infinite(target + begin * panel * bytes_of(real), (end - begin) * panel, real)


@jit
def undefine_infinite(address: int, count: int, real: Any) -> None:
    """NaN for Inf: a sum of products is then NaN as soon as one of its terms is."""
    values = pointer_at(address, real)
    for k in range(count):
        values[k] = values[k] + (values[k] - values[k])


@jit
def take_state(
    thread: int, threads: int, words: Any, direction: int, given: int, state: int, element: Any, real: Any
) -> None:
    """The gradient of a chain's last state, zero if there is none."""
    sizes = sizes_of(words)
    source = view(words, direction, given)
    line = (sizes.hidden + sizes.width - 1) // sizes.width * sizes.width
    begin, end = share(sizes.batch, 1, thread, threads)
    for n in range(begin, end):
        target = pointer_at(view(words, direction, state).address + n * line * bytes_of(real), real)
        if source.address == 0:
            for k in range(sizes.hidden):
                target[k] = 0.0
        else:
            row = pointer_at(at(source, 0, n, 0, bytes_of(element)), element)
            for k in range(sizes.hidden):
                target[k] = row[k * source.k] + (row[k * source.k] - row[k * source.k])


@jit
def pack_chunk(
    thread: int, threads: int, words: Any, direction: int, start: int, end: int,
    element: Any, real: Any, wide: Any,
) -> None:  # fmt: skip
    """A thread's share of what the products of the chunk of steps [start, end) multiply, and of the bias gradient."""
    sizes = sizes_of(words)
    if view(words, direction, Field.DW).address != 0:
        count = sizes.features // sizes.sources
        for source in range(sizes.sources):
            pack_operand(
                thread, threads, words, direction, start, end, view(words, direction, Field.SOURCE0 + source), False,
                view(words, direction, Field.PACKED_SOURCE0 + source).address,
                count, sizes.source_height, element, real,
            )  # fmt: skip
        pack_operand(
            thread, threads, words, direction, start, end, view(words, direction, Field.H), True,
            view(words, direction, Field.PACKED_STATE).address,
            sizes.hidden, sizes.state_height, element, real,
        )  # fmt: skip
    if view(words, direction, Field.DB).address != 0:
        add_bias(thread, threads, words, direction, start, end, real, wide)
    if view(words, direction, Field.DX_ROWS).address != 0:
        pack_delta(thread, threads, words, direction, start, end, real)


@jit
def pack_operand(
    thread: int, threads: int, words: Any, direction: int, start: int, end: int, values: View, previous: bool,
    target: int, count: int, height: int, element: Any, real: Any,
) -> None:  # fmt: skip
    """A chunk of `values` (with `previous`: of the states that its steps started from), transposed, as A."""
    sizes = sizes_of(words)
    begin_row = row_of(words, direction, start)
    rows = row_of(words, direction, end) - begin_row
    begin, last = share((count + height - 1) // height, 1, thread, threads)
    for step in range(start, end):
        source, time = values, time_of(sizes, direction, step + 1 if previous else step)
        if previous and step + 1 == sizes.steps:
            source, time = view(words, direction, Field.H0), 0
        row = row_of(words, direction, step) - begin_row
        next_row = row_of(words, direction, step + 1) - begin_row
        address = at(source, time, -row, 0, bytes_of(element))
        pack(element, target, address, count, source.k, rows, source.n, height, begin, last, row, next_row)
    panel = rows * height
    undefine_infinite(target + begin * panel * bytes_of(real), (last - begin) * panel, real)


@jit
def add_bias(
    thread: int, threads: int, words: Any, direction: int, start: int, end: int, real: Any, wide: Any
) -> None:
    """Column sums of a chunk's gate gradients, in float64."""
    sizes = sizes_of(words)
    rows = row_of(words, direction, end) - row_of(words, direction, start)
    begin, last = share(4 * ((sizes.hidden + sizes.width - 1) // sizes.width), 1, thread, threads)
    delta, db = view(words, direction, Field.DELTA).address, view(words, direction, Field.DB)
    for panel in range(begin, last):
        sums = apart(db.address + panel * sizes.width * 8, wide, 10)
        for k in range(sizes.width if start == 0 else 0):
            sums[k] = 0.0
        for row in range(rows):
            line = apart(delta + (panel * rows + row) * sizes.width * bytes_of(real), real, 11)
            for k in range(sizes.width):
                sums[k] = sums[k] + line[k]


@jit
def pack_delta(
    thread: int, threads: int, words: Any, direction: int, start: int, end: int, real: Any
) -> None:
    """A chunk's gate gradients as A."""
    sizes = sizes_of(words)
    rows = row_of(words, direction, end) - row_of(words, direction, start)
    delta, packed = view(words, direction, Field.DELTA).address, view(words, direction, Field.PACKED_DELTA).address
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    p0, p1 = share((rows + sizes.tall - 1) // sizes.tall, 1, thread, threads)
    for gate in range(4):
        for block in range(blocks):
            begin = gate * sizes.hidden + block * sizes.width
            last = min(begin + sizes.width, (gate + 1) * sizes.hidden)
            source = delta + ((gate * blocks + block) * rows * sizes.width - begin) * bytes_of(real)
            pack(real, packed, source, rows, sizes.width, 4 * sizes.hidden, 1, sizes.tall, p0, p1, begin, last)


@jit
def multiply_chunk(
    thread: int, threads: int, words: Any, direction: int, start: int, end: int,
    element: Any, real: Any,
) -> None:  # fmt: skip
    """A thread's share of a chunk's part of dw and of its rows of dx."""
    sizes = sizes_of(words)
    rows = row_of(words, direction, end) - row_of(words, direction, start)
    if view(words, direction, Field.DW).address != 0:
        count = sizes.features // sizes.sources
        for source in range(sizes.sources):
            add_product(
                thread, threads, words, direction, start, rows, source * count,
                view(words, direction, Field.PACKED_SOURCE0 + source).address, count, sizes.source_height, real,
            )  # fmt: skip
        add_product(
            thread, threads, words, direction, start, rows, sizes.features,
            view(words, direction, Field.PACKED_STATE).address, sizes.hidden, sizes.state_height, real,
        )  # fmt: skip
    product = view(words, direction, Field.DX_ROWS).address
    if product != 0:
        a_panels = (rows + sizes.tall - 1) // sizes.tall
        b_panels = (sizes.features + sizes.width - 1) // sizes.width
        a0, a1, b0, b1 = share_grid(a_panels, b_panels, thread, threads)
        multiply(
            real, product, sizes.features, view(words, direction, Field.PACKED_DELTA).address,
            view(words, direction, Field.PACKED_IH).address, rows, sizes.features, 4 * sizes.hidden, sizes.tall,
            a0, a1, b0, b1, 0,
        )  # fmt: skip
        k0, k1 = b0 * sizes.width, min(b1 * sizes.width, sizes.features)
        write_dx(words, direction, start, end, a0 * sizes.tall, a1 * sizes.tall, k0, k1, element, real)


@jit
def add_product(
    thread: int, threads: int, words: Any, direction: int, start: int, rows: int, first: int, packed: int,
    count: int, height: int, real: Any,
) -> None:  # fmt: skip
    """Rows [first, first + count) of the transposed weight gradients."""
    sizes = sizes_of(words)
    panels = 4 * ((sizes.hidden + sizes.width - 1) // sizes.width)
    line = panels * sizes.width
    a0, a1, b0, b1 = share_grid((count + height - 1) // height, panels, thread, threads)
    multiply(
        real, view(words, direction, Field.DW).address + first * line * bytes_of(real), line,
        packed, view(words, direction, Field.DELTA).address,
        count, line, rows, height, a0, a1, b0, b1, 1 if start > 0 else 0,
    )  # fmt: skip


@jit
def write_dx(
    words: Any, direction: int, start: int, end: int, r0: int, r1: int, k0: int, k1: int, element: Any, real: Any
) -> None:
    """Round the rows [r0, r1) of a chunk's product into dx; the direction that comes second adds in dx's own dtype."""
    sizes = sizes_of(words)
    dx, product = view(words, 0, Field.DX), view(words, direction, Field.DX_ROWS).address
    begin_row = row_of(words, direction, start)
    for step in range(start, end):
        row = row_of(words, direction, step) - begin_row
        next_row = row_of(words, direction, step + 1) - begin_row
        other_chunk = (sizes.steps - 1 - step) // sizes.chunk
        second = sizes.directions == 2 and other_chunk < start // sizes.chunk + direction
        time = time_of(sizes, direction, step)
        for r in range(max(row, r0), min(next_row, r1)):
            line = product + (r * sizes.features + k0) * bytes_of(real)
            target = at(dx, time, r - row, k0, bytes_of(element))
            write_row(k1 - k0, line, target, dx.k, second, element, real)


@jit
def write_row(count: int, source: int, target: int, stride: int, adds: bool, element: Any, real: Any) -> None:
    """Round a row in place, from wide elements to narrower ones in the same memory, and put it where it belongs."""
    wide, narrow = pointer_at(source, real), pointer_at(source, element)
    for k in range(count):
        narrow[k] = wide[k]
    values, to = apart(source, element, 10), apart(target, element, 11)
    if adds:
        for k in range(count):
            to[k * stride] = to[k * stride] + values[k]
    elif stride == 1:
        for k in range(count):
            to[k] = values[k]
    else:
        for k in range(count):
            to[k * stride] = values[k]


@jit
def finish(
    direction: int, p0: int, p1: int, b0: int, b1: int, words: Any, element: Any, real: Any
) -> None:
    """The gradients of the initial states, for some rows and hidden units."""
    sizes = sizes_of(words)
    dh_prev, dc_prev = view(words, direction, Field.DH_PREV), view(words, direction, Field.DC_PREV)
    if dh_prev.address != 0:
        recur(sizes.steps, direction, p0, p1, b0, b1, words, real)
        write_state(p0, p1, b0, b1, view(words, direction, Field.STATE_DH), dh_prev, sizes, element, real)
    if dc_prev.address != 0:
        write_state(p0, p1, b0, b1, view(words, direction, Field.STATE_DC), dc_prev, sizes, element, real)


@jit
def write_state(
    p0: int, p1: int, b0: int, b1: int, state: View, target: View, sizes: Sizes, element: Any, real: Any
) -> None:
    """Round a carried gradient into an output."""
    line = (sizes.hidden + sizes.width - 1) // sizes.width * sizes.width
    for n in range(p0 * sizes.height, min(p1 * sizes.height, sizes.batch)):
        source = pointer_at(state.address + n * line * bytes_of(real), real)
        row = pointer_at(at(target, 0, n, 0, bytes_of(element)), element)
        for k in range(b0 * sizes.width, min(b1 * sizes.width, sizes.hidden)):
            row[k * target.k] = source[k]


@jit
def write_params(
    thread: int, threads: int, words: Any, direction: int, element: Any, real: Any, wide: Any
) -> None:
    """A thread's share of the weight and bias gradients, block of hidden units by block."""
    sizes = sizes_of(words)
    if view(words, direction, Field.DW).address == 0:
        return
    blocks = (sizes.hidden + sizes.width - 1) // sizes.width
    dw_ih, dw_hh = view(words, direction, Field.DW_IH), view(words, direction, Field.DW_HH)
    begin, last = share(4 * blocks, 1, thread, threads)
    for panel in range(begin, last):
        k = panel % blocks * sizes.width
        row, count = panel // blocks * sizes.hidden + k, min(sizes.width, sizes.hidden - k)
        turn_back(words, direction, panel, row, count, 0, sizes.features, dw_ih, element, real)
        turn_back(words, direction, panel, row, count, sizes.features, sizes.hidden, dw_hh, element, real)
        sums = view(words, direction, Field.DB)
        if sums.address != 0:
            source = pointer_at(sums.address + panel * sizes.width * 8, wide)
            for name in (Field.DB_IH, Field.DB_HH):
                bias = view(words, direction, name)
                target = pointer_at(bias.address + row * bias.k * bytes_of(element), element)
                for k in range(count):
                    target[k * bias.k] = source[k]


@jit
def turn_back(
    words: Any, direction: int, panel: int, row: int, count: int, first: int, features: int, target: View,
    element: Any, real: Any,
) -> None:  # fmt: skip
    """Rows [row, row + count) of a weight gradient, from the columns of a panel of the transposed one."""
    sizes = sizes_of(words)
    size = bytes_of(real)
    line = 4 * ((sizes.hidden + sizes.width - 1) // sizes.width) * sizes.width
    source = view(words, direction, Field.DW).address + (first * line + panel * sizes.width) * size
    tile = view(words, direction, Field.TURNED).address + panel * sizes.width * TURN * size
    for begin in range(0, features, TURN):
        some = min(TURN, features - begin)
        pack(real, tile, source + begin * line * size, some, line, count, 1, TURN, 0, 1, 0, count)
        for r in range(count):
            to = at(target, 0, row + r, begin, bytes_of(element))
            write_row(some, tile + r * TURN * size, to, target.k, False, element, real)
