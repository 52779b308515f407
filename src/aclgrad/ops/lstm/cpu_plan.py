"""Phase one of the CPU kernel: where everything lies, in the caller's tensors and in the workspace."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ...core.memory import Piece, Scratch
from ...core.meta import Meta
from ...core.spec import Call
from ...cpu.gemm import Gemm
from .cpu_access import computed_dtype, product_for
from .cpu_ends import TURN
from .cpu_loop import READ_PER_STEP
from .cpu_table import Field, Place, Sizes, Table
from .spec import LstmDims

CHUNK_ROWS = 256
"""Rows of gate gradients between two rounds of products: deep enough for them, and still in cache. A sum over a chunk
is one chain of additions, so longer chunks would also round more."""

Places = dict[Field, Place]


def even_height(gemm: Gemm, lanes: int) -> int:
    """The panel height that leaves the fewest lanes empty; among equals the tallest."""
    shortest = max(1, min(lanes, gemm.rows * 4 // 7))
    return min(range(gemm.rows, shortest - 1, -1), key=lambda height: -lanes % height)


def plan_layers(call: Call) -> tuple[tuple[Table, ...], int]:
    """The tables of all layers, last one first, and the bytes of workspace they share."""
    if all(call[name] is None for name in call.spec.out_names):
        return (), 0
    dims = cast(LstmDims, call.dims)
    scratch = Scratch()
    between = [
        scratch.tensor((dims.T, dims.N, dims.D * dims.H), call.tensor("input").dtype) for _ in range(min(dims.L - 1, 2))
    ]
    layers = [LayerPlan(call, layer, between, scratch.size) for layer in reversed(range(dims.L))]
    return tuple(layer.table for layer in layers), max(layer.scratch.size for layer in layers)


class LayerPlan:
    """One layer's table. Its scratch begins behind `reserved` bytes, which hold the gradients between layers."""

    def __init__(self, call: Call, layer: int, between: list[Piece], reserved: int) -> None:
        self.call, self.layer, self.between = call, layer, between
        self.dims = cast(LstmDims, call.dims)
        self.operands = {name: k for k, name in enumerate((*call.spec.params, "workspace"))}
        self.dtype = call.tensor("input").dtype
        self.gemm = product_for(computed_dtype(self.dtype))
        self.sizes = self.layer_sizes()
        self.scratch = Scratch()
        self.scratch.reserve(reserved)
        shared = self.shared_scratch()
        chains = [shared | self.chain_scratch() | self.tensors(direction) for direction in range(self.dims.D)]
        self.table = Table.of(self.sizes._replace(unit_strides=self.unit_strides(chains)), chains)

    def layer_sizes(self) -> Sizes:
        """The head of the table."""
        dims, gemm = self.dims, self.gemm
        features = dims.layer_input(self.layer)
        sources = 1 if self.layer == 0 else dims.D
        chunk = max(1, min(dims.T, CHUNK_ROWS // max(1, dims.N)))
        height = even_height(gemm, dims.N)
        return Sizes(
            steps=dims.T,
            batch=dims.N,
            hidden=dims.H,
            directions=dims.D,
            features=features,
            sources=sources,
            chunk=chunk,
            width=gemm.width,
            blocks=-(-dims.H // gemm.width),
            height=height,
            panels=-(-dims.N // height),
            tall=even_height(gemm, chunk * dims.N),
            source_height=even_height(gemm, features // sources),
            state_height=even_height(gemm, dims.H),
            unit_strides=1,
        )

    def unit_strides(self, chains: list[Places]) -> int:
        """Whether everything a step reads is contiguous along the hidden units."""
        names = (Field.DY, Field.I, Field.F, Field.J, Field.O, Field.TANHC, Field.C, Field.C0)
        return int(self.dims.H == 1 or all(chain[name].strides[2] == 1 for chain in chains for name in names))

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
        return {name: place for name, place in places.items() if place is not None}

    def sequence_lengths(self) -> Place | None:
        """The counts of valid sequences at each time, if lengths vary."""
        meta: Meta | None = self.call["batch_sizes"]
        return None if meta is None else Place(self.operands["batch_sizes"], None, 0, (meta.strides[0], 0, 0))

    def saved(self, name: str, index: int) -> Place:
        """One of the lists [T, N, H]."""
        t, n, k = self.call[name][index].strides
        return Place(self.operands[name], index, 0, (t, n, k))

    def state(self, name: str, index: int, member: int | None = None) -> Place | None:
        """One chain's [N, H] of a [L·D, N, H]."""
        meta: Meta | None = self.call[name] if member is None else self.call[name][member]
        if meta is None:
            return None
        chain, n, k = meta.strides
        return Place(self.operands[name], member, index * chain * meta.itemsize, (0, n, k))

    def matrix(self, name: str, member: int) -> Place | None:
        """A weight [4H, ·] or bias [4H]: its rows count as batch; those of a bias as features."""
        metas: tuple[Meta, ...] | None = self.call[name]
        if metas is None:
            return None
        strides = metas[member].strides
        return Place(
            self.operands[name], member, 0, (0, strides[0], strides[1]) if len(strides) == 2 else (0, 0, strides[0])
        )

    def sequence(self, name: str, direction: int = 0) -> Place | None:
        """input, dx or the part of dy that belongs to a direction."""
        meta: Meta | None = self.call[name]
        if meta is None:
            return None
        strides = meta.strides
        if self.dims.variable:
            t, n, k = self.dims.N * strides[0], *strides
        elif self.dims.batch_first:
            n, t, k = strides
        else:
            t, n, k = strides
        return Place(self.operands[name], None, direction * self.dims.H * k * meta.itemsize, (t, n, k))

    def passed(self, layer: int, direction: int = 0) -> Place:
        """The gradient that a layer passes to the one below it, or the part of it that belongs to a direction."""
        line = self.dims.D * self.dims.H
        offset = self.between[layer % len(self.between)].offset + direction * self.dims.H * self.dtype.itemsize
        return Place(self.operands["workspace"], None, offset, (self.dims.N * line, line, 1))

    def reserve(self, count: int, itemsize: int, strides: tuple[int, int, int] = (0, 0, 0)) -> Place:
        """Scratch for `count` elements."""
        return Place(self.operands["workspace"], None, self.scratch.reserve(count * itemsize), strides)

    def panels(self, lanes: int, height: int, depth: int) -> int:
        """Elements of a packed operand."""
        return -(-lanes // height) * height * depth

    @property
    def line(self) -> int:
        """Hidden units, rounded up to whole blocks."""
        return self.sizes.blocks * self.sizes.width

    def chain_scratch(self) -> Places:
        """Scratch of one direction."""
        dims, sizes, real = self.dims, self.sizes, self.gemm.operand.unit
        step = self.panels(dims.N, sizes.height, 4 * dims.H)
        places = {
            Field.ROWS_BEFORE: self.reserve(dims.T + 1, 8),
            Field.PACKED_HH: self.reserve(self.panels(dims.H, sizes.width, 4 * dims.H), real),
            Field.STATE_DH: self.reserve(dims.N * self.line, real),
            Field.STATE_DC: self.reserve(dims.N * self.line, real),
            Field.PACKED_STEP: self.reserve(2 * step, real, (step * real, 0, 0)),
            Field.DELTA: self.reserve(4 * self.line * sizes.chunk * dims.N, real),
        }
        if self.wants_dx:
            places[Field.PACKED_IH] = self.reserve(self.panels(sizes.features, sizes.width, 4 * dims.H), real)
        if self.wants_params:
            places[Field.DW] = self.reserve((sizes.features + dims.H) * 4 * self.line, real)
            if dims.B == 2:
                places[Field.DB] = self.reserve(4 * self.line, 8)
        return places

    def shared_scratch(self) -> Places:
        """Scratch that the directions use in turn."""
        dims, sizes, real = self.dims, self.sizes, self.gemm.operand.unit
        rows = sizes.chunk * dims.N
        item = self.dtype.itemsize
        places = {Field.ZEROS: self.reserve(dims.H, item)}
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
