"""How the forward pass of a layer begins, and the states it ends with."""

from __future__ import annotations

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import pointer_at
from aclgrad.cpu.threads import share

from .access import at, bytes_of, pack
from .recurrence_forward import GATES, copy_line, pack_state, previous
from .runs import Run, count_rows, mark_anew, place_of, valid_at
from .table import Field, Layer, View, view


@jit
def prepare_forward(layer: Layer) -> None:
    """Pack the weights, add the biases, count the rows, clear what stands for absent states."""
    sizes = layer.sizes
    for d in range(sizes.directions):
        pack_rows(layer, view(layer, d, Field.W_HH), view(layer, d, Field.PACKED_HH).address, sizes.hidden)
        pack_rows(layer, view(layer, d, Field.W_IH), view(layer, d, Field.PACKED_IH).address, sizes.features)
        add_biases(layer, d)
        mark_anew(layer, d)
    count_rows(layer, sizes.training == 1 and sizes.packed == 0)
    if layer.thread == 0:
        zeros = pointer_at(view(layer, 0, Field.ZEROS).address, layer.element)
        for k in range(sizes.hidden):
            zeros[k] = 0.0


@jit
def pack_rows(layer: Layer, weight: View, packed: int, depth: int) -> None:
    """The thread's share of the rows of a weight [4H, depth] as B: block by block the four gates."""
    sizes = layer.sizes
    begin, last = share(GATES * sizes.blocks, 1, layer.thread, layer.threads)
    for panel in range(begin, last):
        unit = panel // GATES * sizes.width
        pack(
            layer.element, packed + panel * depth * sizes.width * bytes_of(layer.real),
            at(weight, 0, panel % GATES * sizes.hidden + unit, 0, layer.element),
            min(sizes.width, sizes.hidden - unit), weight.n, depth, weight.k, sizes.width, 0, 1, 0, depth,
        )  # fmt: skip


@jit
def add_biases(layer: Layer, direction: int) -> None:
    """The thread's share of b_ih + b_hh, rounded to the tensors' dtype, in the order of the gates' panels."""
    sizes = layer.sizes
    b_ih, b_hh = view(layer, direction, Field.B_IH), view(layer, direction, Field.B_HH)
    begin, last = share(GATES * sizes.blocks, 1, layer.thread, layer.threads)
    for panel in range(begin, last):
        unit = panel // GATES * sizes.width
        row = panel % GATES * sizes.hidden + unit
        target = view(layer, direction, Field.BIAS).address + panel * sizes.width * bytes_of(layer.real)
        for k in range(min(sizes.width, sizes.hidden - unit)):
            total = pointer_at(target + k * bytes_of(layer.real), layer.real)
            total[0] = 0.0
            if b_ih.address != 0:
                rounded = pointer_at(target + k * bytes_of(layer.real), layer.element)
                rounded[0] = (
                    pointer_at(at(b_ih, 0, 0, row + k, layer.element), layer.element)[0]
                    + pointer_at(at(b_hh, 0, 0, row + k, layer.element), layer.element)[0]
                )
                total[0] = rounded[0]


@jit
def begin_forward(layer: Layer, run: Run) -> None:
    """Take over a run's initial states: h for the first step, and where no activations are saved both for all steps."""
    d = run.direction
    h0 = view(layer, d, Field.H0)
    pack_state(layer, run, h0, 0, -1)
    if layer.sizes.training == 0:
        copy_state(layer, run, h0, 0, view(layer, d, Field.H), 0, layer.sizes.batch)
        copy_state(layer, run, view(layer, d, Field.C0), 0, view(layer, d, Field.C), 0, layer.sizes.batch)


@jit
def finish_forward(layer: Layer, run: Run) -> None:
    """The states a run ends with."""
    d, steps = run.direction, layer.sizes.steps
    if layer.sizes.packed == 1 and layer.sizes.training == 1:
        take_last_states(layer, run)
        return
    h, t = previous(layer, d, steps, Field.H, Field.H0)
    c, _ = previous(layer, d, steps, Field.C, Field.C0)
    copy_state(layer, run, h, t, view(layer, d, Field.HY), 0, layer.sizes.batch)
    copy_state(layer, run, c, t, view(layer, d, Field.CY), 0, layer.sizes.batch)


@jit
def take_last_states(layer: Layer, run: Run) -> None:
    """The states that packed sequences end with: each at a time of its own, or all at time 0."""
    d, batch, done = run.direction, layer.sizes.batch, 0
    hy, cy = view(layer, d, Field.HY), view(layer, d, Field.CY)
    for t in range((layer.sizes.steps if d == 0 else min(layer.sizes.steps, 1)) - 1, -1, -1):
        rows = valid_at(layer, d, t)
        if rows > done:
            copy_state(layer, run, view(layer, d, Field.H), place_of(layer, t), hy, done, rows)
            copy_state(layer, run, view(layer, d, Field.C), place_of(layer, t), cy, done, rows)
            done = rows
    copy_state(layer, run, view(layer, d, Field.H0), 0, hy, done, batch)
    copy_state(layer, run, view(layer, d, Field.C0), 0, cy, done, batch)


@jit
def copy_state(layer: Layer, run: Run, source: View, place: int, target: View, r0: int, r1: int) -> None:
    """A run's part of the rows [r0, r1) of a state."""
    sizes, element = layer.sizes, layer.element
    k0, k1 = run.b0 * sizes.width, min(run.b1 * sizes.width, sizes.hidden)
    for n in range(max(run.p0 * sizes.height, r0), min(run.p1 * sizes.height, r1)):
        row, to = at(source, place, n, k0, element), at(target, 0, n, k0, element)
        copy_line(k1 - k0, row, source.k, to, target.k, element)
