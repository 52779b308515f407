"""Packed sequences: the rows of a time follow those of the time before, and nothing is padded.

How many rows there are, and where those of a time begin, is another thing in every batch. So a plan serves all numbers
of rows that round alike (`core/rows.py`): memory and launches are for the rounded number, and a call first writes down,
in tables, what kernels look up. Rows beyond the last are zeros wherever a product or a sum would take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.rows import rounded_rows
from aclgrad.core.spec import Call
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import jit
from aclgrad.gpu.maths import undefined_if_infinite
from aclgrad.gpu.operands import Given, NamedKernel, Operand, RowsKernel

from ..dims import LstmDims

if TYPE_CHECKING:
    from .workspace import Workspace

TIMES, BLOCK, TILE_ROWS, TILE_COLUMNS = 1024, 1024, 16, 128
"""Times that `find_starts` takes at once, rows of a program of `find_times`, and the tile of a program of others."""

TAIL_PROGRAMS = 64


def launch_dims(call: Call) -> LstmDims:
    """The sizes that a launch is made for: of packed sequences the rounded number of rows."""
    dims: LstmDims = call.dims
    return dims if dims.total is None else dims._replace(total=rounded_rows(dims.total))


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator, unused-ignore]
def find_starts(
    starts_ptr, counts_ptr, batch_sizes_ptr, rows, T, N, batch_sizes_stride, BLOCK: tl.constexpr
):  # fmt: skip
    """The first row of each time and behind the last one the number of all; and how many rows each time has.

    Both tables begin one entry earlier, at a time without rows, and the counts end at one. Counts that make no sense
    lead to no row that is not there.
    """
    tl.store(starts_ptr - 1, 0)
    tl.store(starts_ptr, 0)
    tl.store(counts_ptr - 1, 0)
    tl.store(counts_ptr + T, 0)
    before = tl.zeros((), tl.int64)
    first = 0
    while first < T:
        t = first + tl.arange(0, BLOCK)
        sizes = tl.load(batch_sizes_ptr + t * batch_sizes_stride, mask=t < T, other=0)
        sizes = tl.minimum(tl.maximum(sizes, 0), N).to(tl.int64)
        ends = before + tl.cumsum(sizes, 0)
        begins = tl.minimum(ends - sizes, rows)
        ends = tl.minimum(ends, rows)
        tl.store(starts_ptr + 1 + t, ends, mask=t < T)
        tl.store(counts_ptr + t, ends - begins, mask=t < T)
        before += tl.sum(sizes, 0)
        first += BLOCK


@jit
def find_times(times_ptr, starts_ptr, T, capacity, BLOCK: tl.constexpr):
    """The time of each row, T of those that are not there: how many times end at it or before."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low = tl.zeros((BLOCK,), tl.int32)
    high = low + T
    left = T
    while left > 0:
        middle = (low + high) // 2
        open_ = low < high
        ended = tl.load(starts_ptr + 1 + middle, mask=open_, other=0) <= row
        low = tl.where(open_ & ended, middle + 1, low)
        high = tl.where(open_ & (ended == 0), middle, high)
        left = left // 2
    tl.store(times_ptr + row, low, mask=row < capacity)


@jit
def clear_tail(target_ptr, starts_ptr, T, capacity, width, VALUE: tl.constexpr, COLUMNS: tl.constexpr):
    """The same value in all elements of the rows of target [capacity, width] that are not there."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.load(starts_ptr + T) + tl.program_id(0)
    while row < capacity:
        value = tl.full((COLUMNS,), VALUE, target_ptr.dtype.element_ty)
        tl.store(target_ptr + row * width + column, value, mask=column < width)
        row += tl.num_programs(0)


@jit
def state_before(
    target_ptr, source_ptr, initial_ptr, starts_ptr, times_ptr, counts_ptr, anew_ptr, T, capacity, C, target_row,
    source_strides, initial_strides, t_shift, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of what rows start their step from: the state `t_shift` steps away, or where there is none the initial."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    t = tl.load(times_ptr + row, mask=row < capacity, other=T)
    there = t < T
    n = row - tl.load(starts_ptr + t, mask=there, other=0)
    begun = there & (n < tl.load(counts_ptr + t + t_shift, mask=there, other=0))
    source = tl.load(starts_ptr + t + t_shift, mask=begun, other=0) + n
    if anew_ptr is not None:
        flags = tl.load(anew_ptr + row, mask=there, other=0)
        kept = ((flags >> ((t_shift + 1) // 2)) & 1) == 0
        begun = begun & kept
        there = there & kept
    inside = column < C
    value = tl.load(
        source_ptr + source[:, None] * source_strides[0] + column * source_strides[1], mask=begun[:, None] & inside,
        other=0.0,
    ).to(tl.float32)  # fmt: skip
    initial = tl.load(
        initial_ptr + n[:, None] * initial_strides[0] + column * initial_strides[1],
        mask=(there & (begun == 0))[:, None] & inside, other=0.0,
    ).to(tl.float32)  # fmt: skip
    value = undefined_if_infinite(tl.where(begun[:, None], value, initial))
    at = target_ptr + row[:, None] * target_row + column
    tl.store(at, value.to(target_ptr.dtype.element_ty), mask=(row < capacity)[:, None] & inside)


@jit
def states_before(
    target0_ptr, target1_ptr, source0_ptr, source1_ptr, initial0_ptr, initial1_ptr, starts_ptr, times_ptr, counts_ptr,
    anew_ptr, T, capacity, C, target_row, source0_strides, source1_strides, initial_strides, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Of the forward direction, and where the grid's third axis has a second one of the reverse one."""
    if tl.program_id(2) == 0:
        state_before(
            target0_ptr, source0_ptr, initial0_ptr, starts_ptr, times_ptr, counts_ptr, anew_ptr, T, capacity, C,
            target_row, source0_strides, initial_strides, -1, ROWS, COLUMNS,
        )  # fmt: skip
    else:
        state_before(
            target1_ptr, source1_ptr, initial1_ptr, starts_ptr, times_ptr, counts_ptr, anew_ptr, T, capacity, C,
            target_row, source1_strides, initial_strides, 1, ROWS, COLUMNS,
        )  # fmt: skip


class PackedRows:
    """The tables of a call, in the workspace, and the launches that make those that somebody asks for."""

    def __init__(self, call: Call, dims: LstmDims, scratch: Scratch) -> None:
        self._dims, self.capacity, self._device = dims, dims.rows, call.device
        self._starts, self._counts = (scratch.tensor((dims.T + 2,), torch.int64) for _ in range(2))
        self._times = scratch.tensor((self.capacity,), torch.int32)
        self._find_starts = RowsKernel(
            find_starts, (1,), call.device, (self.starts(), self.counts(), Operand.of(call, "batch_sizes")),
            {"T": dims.T, "N": dims.N, "batch_sizes_stride": call["batch_sizes"].strides[0]}, {"BLOCK": TIMES},
            unknown=True,
        )  # fmt: skip
        self._others: dict[Piece, NamedKernel] = {}  # what else is made, and how

    def starts(self) -> Operand:
        """The first row of each time [T + 1], as an operand."""
        return Operand.at("starts", self._starts, 1)

    def counts(self, name: str = "counts") -> Operand:
        """How many rows each time has [T]."""
        return Operand.at(name, self._counts, 1)

    def times(self) -> Operand:
        """The time of each row [capacity]."""
        if self._times not in self._others:
            self._others[self._times] = NamedKernel(
                find_times, (triton.cdiv(self.capacity, BLOCK),), self._device,
                (Operand.at("times", self._times), self.starts()), {"T": self._dims.T, "capacity": self.capacity},
                {"BLOCK": BLOCK}, unknown=True,
            )  # fmt: skip
        return Operand.at("times", self._times)

    def operands(self) -> list[Operand]:
        """What recurrences are told of lengths."""
        return [self.counts("batch_sizes"), self.starts()]

    def count(self, workspace: torch.Tensor) -> Any:
        """How many rows there are, where a move of all rows looks for how many there are at its only step."""
        return placed(self._starts, workspace, 1 + self._dims.T)

    def clear_tail(self, piece: Piece, value: int = 0) -> None:
        """Have the rows beyond the last hold a value in this piece [capacity, ·], from the start of a call on."""
        if piece in self._others:
            return
        width = piece.nbytes // piece.dtype.itemsize // max(self.capacity, 1)
        self._others[piece] = NamedKernel(
            clear_tail, (min(self.capacity, TAIL_PROGRAMS), triton.cdiv(width, BLOCK)), self._device,
            (Operand.at("target", piece), self.starts()),
            {"T": self._dims.T, "capacity": self.capacity, "width": width}, {"VALUE": value, "COLUMNS": BLOCK},
            unknown=True,
        )  # fmt: skip

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Make the tables, and clear what they say has no rows."""
        self._find_starts(given, workspace, given["input"].shape[0])
        for kernel in self._others.values():
            kernel({}, workspace)


class PackedStates:
    """h that each row starts its step from, of both directions, written side by side."""

    def __init__(
        self, space: Workspace, target_row: int, sources: Sequence[tuple[int, ...]], initial: tuple[int, ...]
    ) -> None:
        """Strides: of a row of the targets, of both sources (row, unit), of the initial states (row, unit)."""
        packed, dims = space.packed, space.dims
        assert packed is not None
        names = ("target0", "target1", "source0", "source1", "initial0", "initial1")
        grid = (triton.cdiv(packed.capacity, TILE_ROWS), triton.cdiv(dims.H, TILE_COLUMNS), dims.D)
        self._kernel = NamedKernel(
            states_before, grid, space.device,
            (
                *(Operand(name, space.dtype) for name in names),
                packed.starts(), packed.times(), packed.counts(),
                Operand.at("anew", space.anew.flags if space.anew else None),
            ),
            {
                "T": dims.T, "capacity": packed.capacity, "C": dims.H, "target_row": target_row,
                "source0_strides": sources[0], "source1_strides": sources[-1], "initial_strides": initial,
            },
            {"ROWS": TILE_ROWS, "COLUMNS": TILE_COLUMNS}, unknown=True,
        )  # fmt: skip

    def __call__(
        self, workspace: torch.Tensor, targets: Sequence[Any], sources: Sequence[Any], initial: Sequence[Any]
    ) -> None:
        """Copy."""
        pairs = {"target": targets, "source": sources, "initial": initial}
        self._kernel({f"{name}{k}": pair[-k] for name, pair in pairs.items() for k in (0, 1)}, workspace)
