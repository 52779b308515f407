"""Where tensors and scratch of a layer lie in the forward pass."""

from __future__ import annotations

from dataclasses import replace

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call

from ..dims import SAVED
from .places import LayerPlaces, Places, arrays_between, join
from .recurrence_forward import GATES, TOUCHED_PER_STEP
from .table import Field, Place, Table


def plan_forward_layers(call: Call) -> tuple[tuple[Table, ...], int]:
    """The tables of all layers, first one first, and the bytes of workspace they share."""
    scratch = Scratch()
    between = [] if call["train"] else arrays_between(call, scratch)
    return join(ForwardPlan(call, layer, between, scratch.size) for layer in range(call.dims.L))


class ForwardPlan(LayerPlaces):
    """The table of one layer's forward pass.

    With `train` a layer above the first reads what the one below saved. Without, there are arrays between layers, and
    of h and c only the latest is kept: as lists whose times all lie in one place.
    """

    chunk_rows = 512
    touched = (*(Field[name.upper()] for name in SAVED), Field.C0, Field.Y)

    def source_count(self) -> int:
        """An array between layers holds both directions side by side, saved activations are apart."""
        return self.dims.D if self.layer > 0 and self.call["train"] else 1

    def shared_scratch(self) -> Places:
        """Scratch of both directions."""
        dims, sizes, item = self.dims, self.sizes, self.dtype.itemsize
        self.zeros = self.reserve(dims.H, item, (0, 0, 1))
        return {
            Field.ZEROS: self.zeros,
            Field.ROWS_UNTIL: self.reserve(dims.T + 1, 8),
            Field.GATHERED: self.reserve(dims.D * sizes.panels * self.line * TOUCHED_PER_STEP, item),
        }

    def chain_scratch(self) -> Places:
        """Scratch of one direction."""
        dims, sizes, real, item = self.dims, self.sizes, self.gemm.operand.unit, self.dtype.itemsize
        rows, columns = sizes.capacity, GATES * self.line
        step = self.panels(dims.N, sizes.height, dims.H)
        places = {
            Field.PACKED_IH: self.reserve(columns * sizes.features, real),
            Field.PACKED_HH: self.reserve(columns * dims.H, real),
            Field.PACKED_STEP: self.reserve(2 * step, real, (step * real, 0, 0)),
            Field.PACKED_SOURCE0: self.reserve(self.panels(rows, sizes.tall, sizes.features), real),
            Field.BIAS: self.reserve(columns, real),
            Field.GATES: self.reserve(rows * columns, real),
        }
        if not all(self.is_even(source) for source in self.sources()):
            places[Field.COLLECTED] = self.reserve(rows * sizes.features, item, (0, sizes.features, 1))
        if not self.call["train"]:
            for name in (Field.H, Field.C):
                places[name] = self.reserve(dims.N * self.line, item, (0, self.line, 1))
        return places

    def tensors(self, direction: int) -> Places:
        """The caller's tensors as one direction sees them, and the arrays between layers."""
        dims, layer = self.dims, self.layer
        index = layer * dims.D + direction
        places = {
            Field.BATCH_SIZES: self.sequence_lengths(),
            Field.HY: self.state("hy", index),
            Field.CY: self.state("cy", index),
            **dict(zip((Field.SOURCE0, Field.SOURCE1), self.sources(), strict=False)),
        }
        if layer == dims.L - 1:
            places[Field.Y] = self.sequence("output", direction)
        elif not self.call["train"]:
            places[Field.Y] = self.passed(layer, direction)
        for member, name in enumerate((Field.H0, Field.C0)):
            places[name] = self.state("hx", index, member) if self.call["hx"] else self.zeros
        for k, name in enumerate((Field.W_IH, Field.W_HH, Field.B_IH, Field.B_HH)[: 2 * dims.B]):
            places[name] = self.matrix("params", 2 * dims.B * index + k)
        if self.call["train"]:
            places |= {Field[name.upper()]: self.saved(name, index) for name in SAVED}
        return {name: place for name, place in places.items() if place is not None} | self.resets()

    def sources(self) -> list[Place]:
        """What the layer reads."""
        if self.layer == 0:
            found = [self.sequence("input")]
        elif self.call["train"]:
            found = [self.saved("h", (self.layer - 1) * self.dims.D + direction) for direction in range(self.dims.D)]
        else:
            found = [self.passed(self.layer - 1)]
        places = [place for place in found if place is not None]
        if self.dims.N == 1:  # then it is along time that rows follow each other
            return [replace(place, strides=(place.strides[0], *place.strides[::2])) for place in places]
        return places

    def is_even(self, source: Place) -> bool:
        """Whether the rows of a chunk lie at one distance from each other, and all of them count."""
        t, n, _ = source.strides
        if self.packed:
            return True
        if self.dims.variable and (self.layer > 0 or not self.call["train"]):
            return False
        return self.sizes.capacity <= self.dims.N or self.dims.N == 1 or t == self.dims.N * n
