"""The recurrence of the forward pass: gates and states step by step.

A step adds h_prev @ w_hhᵀ to what its input gave the gates (`products_forward.py`), for the hidden units of a block all
four gates side by side, then activates them and makes the states of that block alone. So a thread owns some rows and
blocks for the whole recurrence (`runs.py`): it multiplies, takes the step, and packs its part of h for the next
one.
"""

from __future__ import annotations

from typing import Any

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import apart, pointer_at
from aclgrad.cpu.vecmath import tanh
from aclgrad.ops._shared.lstm_gates_cpu import next_state

from .access import at, bytes_of, multiply, pack, panels_of
from .runs import Run, packed_step, place_of, rows_until, starts_anew, time_of, valid_at
from .table import Field, Layer, View, view

GATES = 4
TOUCHED_PER_STEP = 9  # lines of hidden units: i, j, f, o, tanhc, c, h and y written, c_prev read


@jit
def forward_time(layer: Layer, direction: int, step: int) -> int:
    """The time index that a direction visits at a step."""
    time: int = time_of(layer, 1 - direction, step)
    return time


@jit
def chunk_times(layer: Layer, direction: int, start: int, end: int) -> tuple[int, int]:
    """The times [first, last) of the steps [start, end)."""
    steps = layer.sizes.steps
    return (start, end) if direction == 0 else (steps - end, steps - start)


@jit
def gates_line(layer: Layer) -> int:
    """Elements of a row of gates."""
    return GATES * layer.sizes.blocks * layer.sizes.width


@jit
def previous(layer: Layer, direction: int, step: int, name: int, initial: int) -> tuple[View, int]:
    """The state a step starts from, as a view and an index along t; not that of packed sequences that begin there."""
    if step == 0:
        return view(layer, direction, initial), 0
    return view(layer, direction, name), place_of(layer, forward_time(layer, direction, step - 1))


@jit
def rows_there(layer: Layer, direction: int, step: int) -> int:
    """Rows of h and c that a step has left: of packed sequences only where it has data, if all times are kept."""
    if layer.sizes.packed == 0 or layer.sizes.training == 0 or step < 0:
        return layer.sizes.batch
    rows: int = valid_at(layer, direction, forward_time(layer, direction, step))
    return rows


@jit
def step_forward(layer: Layer, run: Run, step: int, start: int, end: int) -> None:
    """One step of a run, of the chunk [start, end): gates, states, and h packed for the step after."""
    sizes, real, d = layer.sizes, layer.real, run.direction
    t, line = forward_time(layer, d, step), gates_line(layer)
    first, _ = chunk_times(layer, d, start, end)
    before = rows_until(layer, t)
    rows = rows_until(layer, t + 1) - before
    gates = view(layer, d, Field.GATES).address + (before - rows_until(layer, first)) * line * bytes_of(real)
    for panel in range(GATES * run.b0, GATES * run.b1):  # one at a time: it stays in cache while the rows pass over it
        multiply(
            real, gates, line, packed_step(layer, d, step - 1), view(layer, d, Field.PACKED_HH).address,
            rows, line, sizes.hidden, sizes.height,
            run.p0, min(run.p1, panels_of(rows, sizes.height)), panel, panel + 1, 1,
        )  # fmt: skip
    take_step(layer, run, step, t, rows, gates)
    if view(layer, d, Field.BATCH_SIZES).address != 0 and sizes.packed == 0:
        carry_states(layer, run, step, t)
    pack_state(layer, run, view(layer, d, Field.H), place_of(layer, t), step)


@jit
def pack_state(layer: Layer, run: Run, h: View, place: int, step: int) -> None:
    """A run's part of h, for the step after; initial states where sequences begin there, zeros in rows that are reset.

    Nothing is read of a step that nobody takes.
    """
    sizes, d = layer.sizes, run.direction
    if step + 1 >= sizes.steps:
        return
    after = forward_time(layer, d, step + 1)
    k0, k1 = run.b0 * sizes.width, min(run.b1 * sizes.width, sizes.hidden)
    packed, wanted = packed_step(layer, d, step), sizes.batch
    if sizes.packed == 1:
        wanted = valid_at(layer, d, after)
    left = rows_there(layer, d, step)
    there = min(wanted, left)
    pack(
        layer.element, packed, at(h, place, 0, 0, layer.element),
        left, h.n, sizes.hidden, h.k, sizes.height, run.p0, min(run.p1, panels_of(there, sizes.height)), k0, k1,
    )  # fmt: skip
    h0, resets = view(layer, d, Field.H0), view(layer, d, Field.ANEW).address != 0
    last = min(run.p1 * sizes.height, valid_at(layer, d, after))
    for n in range(run.p0 * sizes.height if resets else max(run.p0 * sizes.height, there), last):
        panel, lane = n // sizes.height, n % sizes.height
        first = (panel * sizes.hidden + k0) * sizes.height + lane
        row = pointer_at(packed + first * bytes_of(layer.real), layer.real)
        if starts_anew(layer, d, after, n):
            for k in range(k1 - k0):
                row[k * sizes.height] = 0.0
        elif n >= there:
            initial = pointer_at(at(h0, 0, n, k0, layer.element), layer.element)
            for k in range(k1 - k0):
                row[k * sizes.height] = initial[k * h0.k]


@jit
def take_step(layer: Layer, run: Run, step: int, t: int, rows: int, gates: int) -> None:
    """Gates and states of a run, into wherever the caller wants them."""
    sizes, element, d = layer.sizes, layer.element, run.direction
    c_prev, before = previous(layer, d, step, Field.C, Field.C0)
    initial, there, here = view(layer, d, Field.C0), rows_there(layer, d, step - 1), place_of(layer, t)
    lines = (
        view(layer, d, Field.I), view(layer, d, Field.J), view(layer, d, Field.F), view(layer, d, Field.O),
        view(layer, d, Field.TANHC), view(layer, d, Field.C), view(layer, d, Field.H), view(layer, d, Field.Y),
    )  # fmt: skip
    slot = (d * sizes.panels + run.p0) * sizes.blocks + run.b0
    pace = sizes.width * bytes_of(element)
    near = view(layer, d, Field.GATHERED).address + slot * TOUCHED_PER_STEP * pace
    block_bytes = GATES * sizes.width * bytes_of(layer.real)
    bias = view(layer, d, Field.BIAS).address
    for n in range(run.p0 * sizes.height, min(run.p1 * sizes.height, rows)):
        row = gates + n * sizes.blocks * block_bytes
        c_start, c_place, c_row = c_prev, before, n
        if n >= there:
            c_start, c_place = initial, 0
        if starts_anew(layer, d, t, n):
            c_start, c_place, c_row = view(layer, d, Field.ZEROS), 0, 0
        for block in range(run.b0, run.b1):
            k = block * sizes.width
            count = min(sizes.width, sizes.hidden - k)
            to = places(lines, here, n, k, near, pace, layer)
            state = at(c_start, c_place, c_row, k, element)
            if sizes.unit_strides == 0:
                copy_line(count, state, c_start.k, near + len(lines) * pace, 1, element)
                state = near + len(lines) * pace
            state_row(layer, count, row + block * block_bytes, bias + block * block_bytes, state, to)
            if sizes.unit_strides == 0:
                for index in range(len(lines)):
                    if lines[index].address != 0:
                        where = at(lines[index], here, n, k, element)
                        copy_line(count, to[index], 1, where, lines[index].k, element)


@jit
def places(lines: Any, t: int, n: int, k: int, near: int, pace: int, layer: Layer) -> Any:
    """Where a block of a row goes in every tensor."""
    return (
        place(lines[0], t, n, k, near, layer), place(lines[1], t, n, k, near + pace, layer),
        place(lines[2], t, n, k, near + 2 * pace, layer), place(lines[3], t, n, k, near + 3 * pace, layer),
        place(lines[4], t, n, k, near + 4 * pace, layer), place(lines[5], t, n, k, near + 5 * pace, layer),
        place(lines[6], t, n, k, near + 6 * pace, layer), place(lines[7], t, n, k, near + 7 * pace, layer),
    )  # fmt: skip


@jit
def place(line: View, t: int, n: int, k: int, near: int, layer: Layer) -> int:
    """Address of an element, or in scratch that of one which nobody wants or which has to be scattered later."""
    return at(line, t, n, k, layer.element) if line.address != 0 and layer.sizes.unit_strides == 1 else near


@jit
def copy_line(count: int, source: int, source_step: int, target: int, target_step: int, element: Any) -> None:
    """Elements from one place to another."""
    read, write = apart(pointer_at(source, element), 0), apart(pointer_at(target, element), 1)
    for k in range(count):
        write[k * target_step] = read[k * source_step]


@jit
def state_row(layer: Layer, count: int, gates: int, bias: int, c_prev_at: int, to: Any) -> None:
    """One row of a block: the four gates activated, both states, and what the gradient wants to know."""
    element, real = layer.element, layer.real
    pace = layer.sizes.width * bytes_of(real)
    a_i, a_f = apart(pointer_at(gates, real), 0), apart(pointer_at(gates + pace, real), 1)
    a_g, a_o = apart(pointer_at(gates + 2 * pace, real), 2), apart(pointer_at(gates + 3 * pace, real), 3)
    b_i, b_f = apart(pointer_at(bias, real), 4), apart(pointer_at(bias + pace, real), 5)
    b_g, b_o = apart(pointer_at(bias + 2 * pace, real), 6), apart(pointer_at(bias + 3 * pace, real), 7)
    i, j = apart(pointer_at(to[0], element), 8), apart(pointer_at(to[1], element), 9)
    f, o = apart(pointer_at(to[2], element), 10), apart(pointer_at(to[3], element), 11)
    tanhc, c = apart(pointer_at(to[4], element), 12), apart(pointer_at(to[5], element), 13)
    h, y = apart(pointer_at(to[6], element), 14), apart(pointer_at(to[7], element), 15)
    c_prev = apart(pointer_at(c_prev_at, element), 16)
    for k in range(count):
        i[k], f[k], j[k], o_k, c_k = next_state(
            a_i[k] + b_i[k], a_f[k] + b_f[k], a_g[k] + b_g[k], a_o[k] + b_o[k], c_prev[k]
        )
        tanhc_k = tanh(c_k)
        o[k], c[k], tanhc[k], h[k], y[k] = o_k, c_k, tanhc_k, o_k * tanhc_k, o_k * tanhc_k


@jit
def carry_states(layer: Layer, run: Run, step: int, t: int) -> None:
    """Past the end of a sequence a run's states stay what they were, and y is zero."""
    sizes, element, d = layer.sizes, layer.element, run.direction
    k0, k1 = run.b0 * sizes.width, min(run.b1 * sizes.width, sizes.hidden)
    c_prev, before = previous(layer, d, step, Field.C, Field.C0)
    h_prev, _ = previous(layer, d, step, Field.H, Field.H0)
    c, h = view(layer, d, Field.C), view(layer, d, Field.H)
    tanhc, y = view(layer, d, Field.TANHC), view(layer, d, Field.Y)
    for n in range(max(run.p0 * sizes.height, valid_at(layer, d, t)), min(run.p1 * sizes.height, sizes.batch)):
        if sizes.training == 1:
            state = at(c_prev, before, n, k0, element)
            copy_line(k1 - k0, state, c_prev.k, at(c, t, n, k0, element), c.k, element)
            copy_line(k1 - k0, at(h_prev, before, n, k0, element), h_prev.k, at(h, t, n, k0, element), h.k, element)
            carried, squashed = pointer_at(state, element), pointer_at(at(tanhc, t, n, k0, element), element)
            for k in range(k1 - k0):
                squashed[k * tanhc.k] = tanh(carried[k * c_prev.k])
        if y.address != 0:
            ended = pointer_at(at(y, t, n, k0, element), element)
            for k in range(k1 - k0):
                ended[k * y.k] = 0.0
