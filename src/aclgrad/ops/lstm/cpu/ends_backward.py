"""How a layer begins, and what it leaves behind."""

from __future__ import annotations

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import pointer_at
from aclgrad.cpu.threads import share

from .access import at, bytes_of, pack, panels_of
from .products_backward import undefine_infinite
from .recurrence_backward import drop_states, recur
from .runs import Run, count_rows, mark_anew, time_of, valid_rows
from .table import Field, Layer, View, view


@jit
def prepare(layer: Layer) -> None:
    """Pack the weights, count the rows of gate gradients, take over dh and dc, clear what no step will write."""
    sizes = layer.sizes
    for d in range(sizes.directions):
        pack_weight(layer, view(layer, d, Field.W_HH), view(layer, d, Field.PACKED_HH).address, sizes.hidden)
        if view(layer, d, Field.PACKED_IH).address != 0:
            pack_weight(layer, view(layer, d, Field.W_IH), view(layer, d, Field.PACKED_IH).address, sizes.features)
        take_state(layer, view(layer, d, Field.DH), view(layer, d, Field.STATE_DH))
        take_state(layer, view(layer, d, Field.DC), view(layer, d, Field.STATE_DC))
        mark_anew(layer, d)
    count_rows(layer, False)
    zeros = pointer_at(view(layer, 0, Field.ZEROS).address, layer.element)
    for k in range(sizes.hidden if layer.thread == 0 else 0):
        zeros[k] = 0.0
    clear_padding(layer)


@jit
def pack_weight(layer: Layer, weight: View, packed: int, columns: int) -> None:
    """The thread's share of a weight [4H, columns] as B."""
    depth, width = 4 * layer.sizes.hidden, layer.sizes.width
    begin, last = share(panels_of(columns, width), 1, layer.thread, layer.threads)
    pack(layer.element, packed, weight.address, columns, weight.k, depth, weight.n, width, begin, last, 0, depth)
    panel = depth * width
    undefine_infinite(packed + begin * panel * bytes_of(layer.real), (last - begin) * panel, layer.real)


@jit
def take_state(layer: Layer, given: View, state: View) -> None:
    """The gradient of a chain's last state, zero if there is none."""
    sizes = layer.sizes
    begin, last = share(sizes.batch, 1, layer.thread, layer.threads)
    for n in range(begin, last):
        row = pointer_at(state.address + n * sizes.blocks * sizes.width * bytes_of(layer.real), layer.real)
        if given.address == 0:
            for k in range(sizes.hidden):
                row[k] = 0.0
        else:
            source = pointer_at(at(given, 0, n, 0, layer.element), layer.element)
            for k in range(sizes.hidden):
                row[k] = source[k * given.k]
    line = sizes.blocks * sizes.width
    undefine_infinite(state.address + begin * line * bytes_of(layer.real), (last - begin) * line, layer.real)


@jit
def clear_padding(layer: Layer) -> None:
    """Past the end of a sequence dx is zero."""
    sizes, dx = layer.sizes, view(layer, 0, Field.DX)
    begin, last = share(sizes.steps if dx.address != 0 and sizes.packed == 0 else 0, 1, layer.thread, layer.threads)
    for step in range(begin, last):
        for n in range(valid_rows(layer, 0, step), sizes.batch):
            row = pointer_at(at(dx, time_of(layer, 0, step), n, 0, layer.element), layer.element)
            for k in range(sizes.features):
                row[k * dx.k] = 0.0


@jit
def finish(layer: Layer, run: Run) -> None:
    """The gradients of the initial states, for a run."""
    dh_prev, dc_prev = view(layer, run.direction, Field.DH_PREV), view(layer, run.direction, Field.DC_PREV)
    if dh_prev.address != 0:
        recur(layer, run, layer.sizes.steps)
    drop_states(layer, run, layer.sizes.steps)
    if dh_prev.address != 0:
        write_state(layer, run, view(layer, run.direction, Field.STATE_DH), dh_prev)
    if dc_prev.address != 0:
        write_state(layer, run, view(layer, run.direction, Field.STATE_DC), dc_prev)


@jit
def write_state(layer: Layer, run: Run, state: View, target: View) -> None:
    """Round a carried gradient into an output."""
    sizes = layer.sizes
    for n in range(run.p0 * sizes.height, min(run.p1 * sizes.height, sizes.batch)):
        source = pointer_at(state.address + n * sizes.blocks * sizes.width * bytes_of(layer.real), layer.real)
        row = pointer_at(at(target, 0, n, 0, layer.element), layer.element)
        for k in range(run.b0 * sizes.width, min(run.b1 * sizes.width, sizes.hidden)):
            row[k * target.k] = source[k]
