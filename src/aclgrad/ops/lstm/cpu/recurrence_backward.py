"""The recurrence of the gradient: gate gradients step by step, the last step of the chain first.

A step needs dh = dy + (gate gradients of the step before) @ w_hh for the hidden units of a block, then the gates of
that block alone. So a thread owns some rows and blocks for the whole recurrence (`runs.py`): it multiplies, takes the
gate gradients and packs them for the next step.
"""

from __future__ import annotations

from typing import Any

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import apart, pointer_at
from aclgrad.ops._shared.lstm_gates_cpu import gate_gradients

from .access import at, bytes_of, multiply, pack, panels_of
from .runs import Chunk, Run, packed_step, place_of, rows_before, starts_anew, time_of, valid_at
from .table import Field, Layer, view

READ_PER_STEP = 7  # tensors a step reads: dy, i, f, j, o, tanhc, c


@jit
def advance(layer: Layer, run: Run, chunk: Chunk, step: int) -> None:
    """Gate gradients of a step of a chunk for a run, packed for the step after."""
    sizes, real = layer.sizes, layer.real
    recur(layer, run, step)
    drop_states(layer, run, step)
    first_row = rows_before(layer, run.direction, step)
    rows = rows_before(layer, run.direction, step + 1) - first_row
    panel = chunk.rows * sizes.width * bytes_of(real)
    shift = (first_row - chunk.first_row) * sizes.width * bytes_of(real)
    delta = view(layer, run.direction, Field.DELTA).address + shift
    take_gates(layer, run, step, rows, delta, panel)
    packed, p1 = packed_step(layer, run.direction, step), min(run.p1, panels_of(rows, sizes.height))
    for gate in range(4):
        for block in range(run.b0, run.b1):
            k0 = gate * sizes.hidden + block * sizes.width
            k1 = min(k0 + sizes.width, (gate + 1) * sizes.hidden)
            source = delta + (gate * sizes.blocks + block) * panel - k0 * bytes_of(real)
            pack(real, packed, source, rows, sizes.width, 4 * sizes.hidden, 1, sizes.height, run.p0, p1, k0, k1)


@jit
def recur(layer: Layer, run: Run, step: int) -> None:
    """For the rows that the step before computed, dh: its gate gradients times w_hh. The other rows keep theirs."""
    if step == 0:
        return
    sizes = layer.sizes
    rows = rows_before(layer, run.direction, step) - rows_before(layer, run.direction, step - 1)
    multiply(
        layer.real, view(layer, run.direction, Field.STATE_DH).address, sizes.blocks * sizes.width,
        packed_step(layer, run.direction, step - 1), view(layer, run.direction, Field.PACKED_HH).address,
        rows, sizes.hidden, 4 * sizes.hidden, sizes.height,
        run.p0, min(run.p1, panels_of(rows, sizes.height)), run.b0, run.b1, 0,
    )  # fmt: skip


@jit
def drop_states(layer: Layer, run: Run, step: int) -> None:
    """Of the rows that the step before started from zeros, nothing arrives: neither dh nor dc."""
    sizes, d = layer.sizes, run.direction
    if view(layer, d, Field.ANEW).address == 0 or step == 0:
        return
    t, line = time_of(layer, d, step - 1), sizes.blocks * sizes.width
    k0, k1 = run.b0 * sizes.width, min(run.b1 * sizes.width, sizes.hidden)
    for n in range(run.p0 * sizes.height, min(run.p1 * sizes.height, valid_at(layer, d, t))):
        if starts_anew(layer, d, t, n):
            first = (n * line + k0) * bytes_of(layer.real)
            dh = pointer_at(view(layer, d, Field.STATE_DH).address + first, layer.real)
            dc = pointer_at(view(layer, d, Field.STATE_DC).address + first, layer.real)
            for k in range(k1 - k0):
                dh[k] = 0.0
                dc[k] = 0.0


@jit
def take_gates(layer: Layer, run: Run, step: int, rows: int, delta: int, panel: int) -> None:
    """Gate gradients of a run, into panels that begin at `delta` and lie `panel` bytes apart."""
    sizes, element, real = layer.sizes, layer.element, layer.real
    d, t = run.direction, time_of(layer, run.direction, step)
    dy, i, f, j = view(layer, d, Field.DY), view(layer, d, Field.I), view(layer, d, Field.F), view(layer, d, Field.J)
    o, tanhc, c_prev = view(layer, d, Field.O), view(layer, d, Field.TANHC), view(layer, d, Field.C)
    initial, there, place, before = view(layer, d, Field.C0), rows, place_of(layer, t), 0
    if step + 1 == sizes.steps:
        c_prev = initial
    else:
        before = place_of(layer, time_of(layer, d, step + 1))
        if sizes.packed == 1:  # where a sequence begins, nothing is there
            there = valid_at(layer, d, time_of(layer, d, step + 1))
    line = sizes.blocks * sizes.width
    dh, dc = view(layer, d, Field.STATE_DH).address, view(layer, d, Field.STATE_DC).address
    slot = (d * sizes.panels + run.p0) * sizes.blocks + run.b0
    gathered = view(layer, d, Field.GATHERED).address + slot * READ_PER_STEP * sizes.width * bytes_of(element)
    for n in range(run.p0 * sizes.height, min(run.p1 * sizes.height, rows)):
        c_start, c_step = at(c_prev, before, n, 0, element), c_prev.k
        if n >= there:
            c_start, c_step = at(initial, 0, n, 0, element), initial.k
        if starts_anew(layer, d, t, n):
            c_start, c_step = view(layer, d, Field.ZEROS).address, 1
        read = (
            at(dy, place, n, 0, element), at(i, place, n, 0, element), at(f, place, n, 0, element),
            at(j, place, n, 0, element), at(o, place, n, 0, element), at(tanhc, place, n, 0, element), c_start,
        )  # fmt: skip
        for block in range(run.b0, run.b1):
            k = block * sizes.width
            count = min(sizes.width, sizes.hidden - k)
            state = (n * line + k) * bytes_of(real)
            row = delta + block * panel + n * sizes.width * bytes_of(real)
            if sizes.unit_strides == 1:
                here = shifted(read, k * bytes_of(element), 0)
            else:
                strides = (dy.k, i.k, f.k, j.k, o.k, tanhc.k, c_step)
                here = gather(read, strides, k, count, gathered, sizes.width, element)
            gradient_row(layer, count, here, dh + state, dc + state, row, sizes.blocks * panel)


@jit
def shifted(read: Any, shift: int, step: int) -> Any:
    """Addresses moved by `shift` bytes, each by another `step` more than the one before."""
    return (
        read[0] + shift, read[1] + shift + step, read[2] + shift + 2 * step, read[3] + shift + 3 * step,
        read[4] + shift + 4 * step, read[5] + shift + 5 * step, read[6] + shift + 6 * step,
    )  # fmt: skip


@jit
def gather(read: Any, strides: Any, first: int, count: int, target: int, width: int, element: Any) -> Any:
    """Copies of parts of strided rows side by side; their addresses."""
    step = width * bytes_of(element)
    for index in range(READ_PER_STEP):
        source, copy = pointer_at(read[index], element), pointer_at(target + index * step, element)
        for k in range(count):
            copy[k] = source[(first + k) * strides[index]]
    return shifted((target, target, target, target, target, target, target), 0, step)


@jit
def gradient_row(layer: Layer, count: int, read: Any, dh_at: int, dc_at: int, row: int, gate_step: int) -> None:
    """Gate gradients of one row of a block; dc becomes that of the state the step started from."""
    element, real = layer.element, layer.real
    dy, i = apart(pointer_at(read[0], element), 0), apart(pointer_at(read[1], element), 1)
    f, j = apart(pointer_at(read[2], element), 2), apart(pointer_at(read[3], element), 3)
    o, tanhc = apart(pointer_at(read[4], element), 4), apart(pointer_at(read[5], element), 5)
    c_prev = apart(pointer_at(read[6], element), 6)
    dh, dc = apart(pointer_at(dh_at, real), 7), apart(pointer_at(dc_at, real), 8)
    di, df = apart(pointer_at(row, real), 9), apart(pointer_at(row + gate_step, real), 10)
    dg, do = apart(pointer_at(row + 2 * gate_step, real), 11), apart(pointer_at(row + 3 * gate_step, real), 12)
    for k in range(count):
        di[k], df[k], dg[k], do[k], dc[k] = gate_gradients(
            dy[k] + dh[k], dc[k], i[k], f[k], j[k], o[k], tanhc[k], c_prev[k]
        )
