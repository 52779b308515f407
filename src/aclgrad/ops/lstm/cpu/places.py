"""Phase one of the CPU kernels: where the tensors and the scratch of a layer lie, for either operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, cast

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.rows import rounded_rows
from aclgrad.core.spec import Call
from aclgrad.cpu.gemm import Gemm

from ..dims import LstmDims
from .access import computed_dtype, product_for
from .table import Field, Place, Sizes, Table

Places = dict[Field, Place]


def even_height(gemm: Gemm, lanes: int) -> int:
    """The panel height that leaves the fewest lanes empty; among equals the tallest."""
    shortest = max(1, min(lanes, gemm.rows * 4 // 7))
    return min(range(gemm.rows, shortest - 1, -1), key=lambda height: -lanes % height)


def rows_of(dims: LstmDims) -> int:
    """Rows that there is room for: of packed sequences, whose number is another in every batch, it is rounded."""
    return dims.rows if dims.total is None else rounded_rows(dims.rows)


def arrays_between(call: Call, scratch: Scratch) -> list[Piece]:
    """Up to two arrays [T, N, D·H] that layers in turn write for the next one."""
    dims = cast(LstmDims, call.dims)
    shape = (rows_of(dims), dims.D * dims.H)
    return [scratch.tensor(shape, call.tensor("input").dtype) for _ in range(min(dims.L - 1, 2))]


def join(layers: Iterable[LayerPlaces]) -> tuple[tuple[Table, ...], int]:
    """The tables of layers in the order they run, and the bytes of workspace they share."""
    planned = list(layers)
    return tuple(layer.table for layer in planned), max(layer.scratch.size for layer in planned)


class LayerPlaces(ABC):
    """One layer's table. Its scratch begins behind `reserved` bytes, which hold what passes between layers."""

    chunk_rows: ClassVar[int]  # between two rounds of large products
    touched: ClassVar[tuple[Field, ...]]  # by a step, along the hidden units

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

    @abstractmethod
    def source_count(self) -> int:
        """Tensors that the layer's input consists of."""

    @abstractmethod
    def shared_scratch(self) -> Places:
        """Scratch of both directions."""

    @abstractmethod
    def chain_scratch(self) -> Places:
        """Scratch of one direction."""

    @abstractmethod
    def tensors(self, direction: int) -> Places:
        """The caller's tensors as one direction sees them, and what passes between layers."""

    def layer_sizes(self) -> Sizes:
        """The head of the table."""
        dims, gemm = self.dims, self.gemm
        features = dims.layer_input(self.layer)
        sources = self.source_count()
        rows = rows_of(dims)
        most = min(rows, self.chunk_rows)
        capacity = max(dims.N, most if self.packed else most // max(1, dims.N) * dims.N)
        height = even_height(gemm, dims.N)
        return Sizes(
            steps=dims.T,
            batch=dims.N,
            hidden=dims.H,
            directions=dims.D,
            features=features,
            sources=sources,
            capacity=capacity,
            width=gemm.width,
            blocks=-(-dims.H // gemm.width),
            height=height,
            panels=-(-dims.N // height),
            busy=min(-(-rows // max(1, dims.T * height)), -(-dims.N // height)),
            tall=even_height(gemm, capacity),
            source_height=even_height(gemm, features // sources),
            state_height=even_height(gemm, dims.H),
            unit_strides=1,
            training=int(self.call["train"]),
            packed=int(self.packed),
        )

    def unit_strides(self, chains: list[Places]) -> int:
        """Whether all of the caller's tensors that a step touches are contiguous along the hidden units."""
        touched = [chain[name] for chain in chains for name in self.touched if name in chain]
        return int(self.dims.H == 1 or all(place.strides[2] == 1 for place in touched))

    def sequence_lengths(self) -> Place | None:
        """The counts of valid sequences at each time, if lengths vary."""
        meta: Meta | None = self.call["batch_sizes"]
        return None if meta is None else Place(self.operands["batch_sizes"], None, 0, (meta.strides[0], 0, 0))

    def resets(self) -> Places:
        """What is reset, and scratch of a direction for what that means to it."""
        meta: Meta | None = self.call["reset"]
        if meta is None:
            return {}
        n = meta.strides[-1]
        t = n if self.packed else meta.strides[0]
        flags = self.reserve(rows_of(self.dims), 8, (8 if self.packed else self.dims.N * 8, 8, 0))
        return {Field.RESET: Place(self.operands["reset"], None, 0, (t, n, 0)), Field.ANEW: flags}

    def saved(self, name: str, index: int) -> Place:
        """One of the lists [T, N, H], or of packed rows [total, H]."""
        *t, n, k = self.call[name][index].strides
        return Place(self.operands[name], index, 0, (n if self.packed else t[0], n, k))

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
        """input, dx or the part of output or dy that belongs to a direction."""
        meta: Meta | None = self.call[name]
        if meta is None:
            return None
        strides = meta.strides
        if len(strides) == 2:
            t, n, k = (1 if self.packed else self.dims.N) * strides[0], *strides
        elif self.dims.batch_first and not self.dims.variable:
            n, t, k = strides
        else:
            t, n, k = strides
        return Place(self.operands[name], None, direction * self.dims.H * k * meta.itemsize, (t, n, k))

    def passed(self, layer: int, direction: int = 0) -> Place:
        """What a layer passes to the one after it, or the part of it that belongs to a direction."""
        line = self.dims.D * self.dims.H
        offset = self.between[layer % len(self.between)].offset + direction * self.dims.H * self.dtype.itemsize
        return Place(self.operands["workspace"], None, offset, ((1 if self.packed else self.dims.N) * line, line, 1))

    def reserve(self, count: int, itemsize: int, strides: tuple[int, int, int] = (0, 0, 0)) -> Place:
        """Scratch for `count` elements."""
        return Place(self.operands["workspace"], None, self.scratch.reserve(count * itemsize), strides)

    def panels(self, lanes: int, height: int, depth: int) -> int:
        """Elements of a packed operand."""
        return -(-lanes // height) * height * depth

    @property
    def packed(self) -> bool:
        """Whether the rows of a time follow those of the time before, without padding."""
        return self.dims.total is not None

    @property
    def line(self) -> int:
        """Hidden units, rounded up to whole blocks."""
        return self.sizes.blocks * self.sizes.width
