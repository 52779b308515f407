"""Where tensors and scratch of a layer lie in the gradient."""

from __future__ import annotations

from dataclasses import replace

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call

from .params_backward import TURN
from .places import LayerPlaces, Places, arrays_between, join, rows_of
from .recurrence_backward import READ_PER_STEP
from .table import Field, Place, Table


def plan_layers(call: Call) -> tuple[tuple[Table, ...], int]:
    """The tables of all layers, last one first, and the bytes of workspace they share."""
    if all(call[name] is None for name in call.spec.out_names):
        return (), 0
    scratch = Scratch()
    between = arrays_between(call, scratch)
    return join(LayerPlan(call, layer, between, scratch.size) for layer in reversed(range(call.dims.L)))


class LayerPlan(LayerPlaces):
    """The table of one layer's gradient.

    A sum over a chunk is one chain of additions, so chunks longer than the products' depth asks for would round more.
    """

    chunk_rows = 256
    touched = (Field.DY, Field.I, Field.F, Field.J, Field.O, Field.TANHC, Field.C, Field.C0)

    def source_count(self) -> int:
        """The first layer reads the input, the others what either direction of the layer below saved."""
        return 1 if self.layer == 0 else self.dims.D

    def tensors(self, direction: int) -> Places:
        """The caller's tensors as one direction sees them, and the gradients between layers."""
        dims, layer = self.dims, self.layer
        index = layer * dims.D + direction
        places = {
            Field.BATCH_SIZES: self.sequence_lengths(),
            Field.H0: self.state("hx", index, member=0),
            Field.C0: self.state("hx", index, member=1),
            Field.DH: self.state("dh", index),
            Field.DC: self.state("dc", index),
            Field.DH_PREV: self.state("dh_prev", index),
            Field.DC_PREV: self.state("dc_prev", index),
            Field.DY: self.sequence("dy", direction) if layer == dims.L - 1 else self.passed(layer + 1, direction),
            Field.DX: self.sequence("dx") if layer == 0 else self.passed(layer),
            Field.SOURCE0: self.sequence("input") if layer == 0 else self.saved("h", index - direction - dims.D),
            Field.SOURCE1: self.saved("h", index - direction - 1) if self.sizes.sources == 2 else None,
            **{Field[name.upper()]: self.saved(name, index) for name in ("i", "j", "f", "o", "tanhc", "c", "h")},
        }
        first = 2 * dims.B * index
        for name, member in ((Field.W_IH, first), (Field.W_HH, first + 1)):
            places[name] = self.matrix("params", member)
        for k, name in enumerate((Field.DW_IH, Field.DW_HH, Field.DB_IH, Field.DB_HH)[: 2 * dims.B]):
            places[name] = self.matrix("dparams", first + k)
        return {name: place for name, place in places.items() if place is not None} | self.resets()

    def chain_scratch(self) -> Places:
        """Scratch of one direction."""
        dims, sizes, real = self.dims, self.sizes, self.gemm.operand.unit
        step = self.panels(dims.N, sizes.height, 4 * dims.H)
        places = {
            Field.PACKED_HH: self.reserve(self.panels(dims.H, sizes.width, 4 * dims.H), real),
            Field.STATE_DH: self.reserve(dims.N * self.line, real),
            Field.STATE_DC: self.reserve(dims.N * self.line, real),
            Field.PACKED_STEP: self.reserve(2 * step, real, (step * real, 0, 0)),
            Field.DELTA: self.reserve(4 * self.line * sizes.capacity, real),
        }
        if self.wants_dx:
            places[Field.PACKED_IH] = self.reserve(self.panels(sizes.features, sizes.width, 4 * dims.H), real)
        if self.wants_params:
            places[Field.DW] = self.transposed_params()
            if dims.B == 2:
                places[Field.DB] = self.reserve(4 * self.line, 8)
        return places

    def transposed_params(self) -> Place:
        """Weight gradients [features + H, 4·line], or of one chunk a panel of their columns for every thread."""
        sizes, rows, real = self.sizes, self.sizes.features + self.dims.H, self.gemm.operand.unit
        if rows_of(self.dims) > sizes.capacity:
            return self.reserve(rows * 4 * self.line, real, (4 * self.line, 0, 0))
        slots, slot = min(torch.get_num_threads(), 4 * sizes.blocks), rows * sizes.width
        return self.reserve(slots * slot, real, (sizes.width, slot, slots))

    def shared_scratch(self) -> Places:
        """Scratch that the directions use in turn."""
        dims, sizes, real = self.dims, self.sizes, self.gemm.operand.unit
        rows, item = sizes.capacity, self.dtype.itemsize
        places = {Field.ROWS_UNTIL: self.reserve(dims.T + 1, 8), Field.ZEROS: self.reserve(dims.H, item)}
        if self.layer == dims.L - 1 and self.call["dy"] is None:
            places[Field.DY] = replace(places[Field.ZEROS], strides=(0, 0, 1))
        places[Field.GATHERED] = self.reserve(dims.D * sizes.panels * self.line * READ_PER_STEP, item)
        if self.wants_dx:
            places[Field.PACKED_DELTA] = self.reserve(self.panels(rows, sizes.tall, 4 * dims.H), real)
            places[Field.DX_ROWS] = self.reserve(rows * sizes.features, real)
        if self.wants_params:
            source = self.panels(sizes.features // sizes.sources, sizes.source_height, rows)
            places[Field.PACKED_SOURCE0] = self.reserve(source, real)
            if sizes.sources == 2:
                places[Field.PACKED_SOURCE1] = self.reserve(source, real)
            places[Field.PACKED_STATE] = self.reserve(self.panels(dims.H, sizes.state_height, rows), real)
            places[Field.TURNED] = self.reserve(4 * self.line * TURN, real)
        return places

    @property
    def wants_dx(self) -> bool:
        """Whether somebody needs this layer's dx: the caller or the layer below."""
        return self.layer > 0 or self.call["dx"] is not None

    @property
    def wants_params(self) -> bool:
        """Whether the caller wants the gradients of the parameters."""
        return self.call["dparams"] is not None
