"""Copies between tensors of any strides, as the products and the recurrence want their operands.

A move is a pair of copies of the same shape [T, N, C], one for each direction; or a single copy. A shifted move has
initial states: its source is a chain of states, its target the state that each step starts from, which is the initial
state for the first step of the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.meta import Meta
from aclgrad.gpu.launch import ALIGNED, few, jit
from aclgrad.gpu.maths import undefined_if_infinite
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.strided import NARROW

from ..dims import LstmDims
from .fp16_split.scale import LEAST_AMAX, unscaled

TILE = 2048
"""Elements a program copies."""

COUNTS = ("T", "N")
"""Numbers that change from batch to batch and that no access is wider for."""

Strides = tuple[int, ...]


@jit
def copy(
    target_ptr, source_ptr, initial_ptr, batch_sizes_ptr, anew_ptr, amax0_ptr, amax1_ptr, T, N, C, target_strides,
    source_strides, initial_strides, split_stride, t_shift, CLEAN: tl.constexpr, FILLS: tl.constexpr,
    SPLIT_K: tl.constexpr, BY_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One tile of one copy; row r is (t, n) = (r // N, r % N). A chain's source of step t is step t + t_shift."""
    across = tl.cdiv(C, COLUMNS)
    tile = tl.program_id(0).to(tl.int64)
    rows = (tile // across) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    t, n = rows // N, rows % N
    inside = (t < T) & (columns < C)
    wanted = inside
    if batch_sizes_ptr is not None:
        wanted = inside & (tl.load(batch_sizes_ptr + t, mask=inside, other=0) > n)
    if anew_ptr is not None:
        reverse = (t_shift + 1) // 2
        wanted = wanted & (((tl.load(anew_ptr + t * N + n, mask=inside, other=0) >> reverse) & 1) == 0)
    if initial_ptr is None:
        at = source_ptr + t * source_strides[0] + n * source_strides[1] + columns * source_strides[2]
        value = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
        for k_part in tl.static_range(1, SPLIT_K):
            value += tl.load(at + k_part * split_stride, mask=wanted, other=0.0)
    else:
        in_chain = (t + t_shift >= 0) & (t + t_shift < T)
        value = tl.load(
            source_ptr + (t + t_shift) * source_strides[0] + n * source_strides[1] + columns * source_strides[2],
            mask=wanted & in_chain, other=0.0,
        ).to(tl.float32)  # fmt: skip
        initial = tl.load(
            initial_ptr + n * initial_strides[0] + columns * initial_strides[1], mask=wanted & ~in_chain, other=0.0
        )
        value = tl.where(in_chain, value, initial.to(tl.float32))
    if amax0_ptr is not None:
        if BY_ROWS:
            row_amax = tl.load(
                amax0_ptr + (t * source_strides[0] + n * source_strides[1]) // C, mask=t < T, other=LEAST_AMAX
            )
            value = unscaled(value, row_amax)
        else:
            value = unscaled(value, tl.load(amax0_ptr))
    if amax1_ptr is not None:
        value = unscaled(value, tl.load(amax1_ptr))
    if CLEAN:
        value = undefined_if_infinite(value)
    at = target_ptr + t * target_strides[0] + n * target_strides[1] + columns * target_strides[2]
    tl.store(at, value.to(target_ptr.dtype.element_ty), mask=inside if FILLS else wanted)


@jit
def copy_pair(
    target0_ptr, target1_ptr, source0_ptr, source1_ptr, initial0_ptr, initial1_ptr, batch_sizes_ptr, anew_ptr,
    amax0_ptr, amax1_ptr, T, N, C, target0_strides, target1_strides, source0_strides, source1_strides, initial0_strides,
    initial1_strides, split_stride, CLEAN: tl.constexpr, FILLS: tl.constexpr, SPLIT_K: tl.constexpr,
    BY_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Both copies of a move, by the grid's second axis; a shifted one is of the forward, then of the reverse chain."""
    if tl.program_id(1) == 0:
        copy(
            target0_ptr, source0_ptr, initial0_ptr, batch_sizes_ptr, anew_ptr, amax0_ptr, amax1_ptr, T, N, C,
            target0_strides, source0_strides, initial0_strides, split_stride, -1, CLEAN, FILLS, SPLIT_K, BY_ROWS, ROWS,
            COLUMNS,
        )  # fmt: skip
    else:
        copy(
            target1_ptr, source1_ptr, initial1_ptr, batch_sizes_ptr, anew_ptr, amax0_ptr, amax1_ptr, T, N, C,
            target1_strides, source1_strides, initial1_strides, split_stride, 1, CLEAN, FILLS, SPLIT_K, BY_ROWS, ROWS,
            COLUMNS,
        )  # fmt: skip


class Rows:
    """How (t, n) is counted through: time-major, or batch-major where `input`, `dy` and `dx` are.

    Packed rows follow each other: a time's stride is that of a row, see `recurrence/rows.py`. For a move they are those
    of a single step.
    """

    def __init__(self, dims: LstmDims) -> None:
        self.count, self.packed = dims.rows, dims.total is not None
        self.by_batch = dims.batch_first and not dims.variable
        self.t, self.n = (1, dims.T) if self.by_batch else (1 if self.packed else dims.N, 1)
        self.steps, self.batch = (1, self.count) if self.packed else (dims.T, dims.N)
        self.apart = 1 if self.packed else dims.N  # rows from a time's place to the next one's, time-major
        self.variable = dims.variable

    def shape(self, width: int) -> tuple[int, int, int]:
        """What a move of all rows moves."""
        return (self.steps, self.batch, width)

    def of_list(self, meta: Meta) -> Strides:
        """Strides (t, n, unit) of a saved activation, which is time-major."""
        return (meta.strides[0], *meta.strides) if self.packed else meta.strides

    def of_output(self, meta: Meta) -> Strides:
        """Strides (t, n, feature) of the output."""
        return meta.strides if self.variable and not self.packed else self.of(meta)

    def of(self, meta: Meta) -> Strides:
        """Strides (t, n, feature) of a tensor shaped as `input`."""
        if self.packed:
            return (meta.strides[0], *meta.strides)
        if self.variable:
            return (self.batch * meta.strides[0], *meta.strides)
        first, second, feature = meta.strides
        return (second, first, feature) if self.by_batch else (first, second, feature)

    def within(self, width: int) -> Strides:
        """Strides (t, n, feature) of rows of `width` elements one after another."""
        return (self.t * width, self.n * width, 1)


class Scales(Enum):
    """Which scales are in a product of two scaled matrices."""

    NONE = 0
    BOTH = 1
    SECOND = 2  # the first one's were taken off before
    ROWS = 3  # both, and each row of the first one has its own


@dataclass(frozen=True)
class Move:
    """[T, N, C] from each source to its target, with their strides in elements.

    `initial` are the strides of the initial states of a shifted move, `clean` makes infinities NaN, `masked` writes
    zeros where `batch_sizes` says that there is no data, unless it `fills` nothing there, `reset` where a step starts
    anew, `scaled` tells which scales of two operands are taken off their product, `split_k` how many sources,
    `split_stride` elements from each other, are added.
    """

    shape: tuple[int, int, int]
    targets: tuple[Strides, ...]
    sources: tuple[Strides, ...]
    target_dtype: torch.dtype
    source_dtype: torch.dtype
    initial: tuple[Strides, ...] = ()
    clean: bool = True
    masked: bool = False
    fills: bool = True
    reset: bool = False
    scaled: Scales = Scales.NONE
    split_k: int = 1
    split_stride: int = 0

    def planned(self, device: torch.device) -> PlannedMove:
        """The move, ready to be launched."""
        steps, batch, width = self.shape
        small = few(steps * batch * width)
        crossed = width > 1 and any(strides[-1] != 1 for strides in (*self.sources, *self.targets))
        columns = min(64 if crossed else TILE // 4, triton.next_power_of_2(max(width, 1)))
        if small:
            columns = NARROW
        rows = TILE // columns
        tiles = triton.cdiv(steps * batch, rows) * triton.cdiv(width, columns)
        numbers = {
            "T": steps, "N": batch, "C": width, **_pair("target{}_strides", self.targets),
            **_pair("source{}_strides", self.sources), **_pair("initial{}_strides", self.initial or ((0, 0),)),
            "split_stride": self.split_stride,
        }  # fmt: skip
        constants = {
            "CLEAN": self.clean, "FILLS": self.fills, "SPLIT_K": self.split_k,
            "BY_ROWS": self.scaled is Scales.ROWS, "ROWS": rows, "COLUMNS": columns,
        }  # fmt: skip
        return PlannedMove(
            NamedKernel(
                copy_pair, (tiles, len(self.targets)), device, self._operands(), numbers, constants,
                unknown=True if small or not self._even else COUNTS,
            )
        )  # fmt: skip

    @property
    def _even(self) -> bool:
        """Whether accesses can be wide, so that the compiler should know."""
        strides = (*self.sources, *self.targets, *self.initial)
        return all(number % ALIGNED == 0 for number in (self.shape[2], *(s for of in strides for s in of[:-1])))

    def _operands(self) -> list[Operand]:
        """The table of `copy_pair`."""
        initial = self.source_dtype if self.initial else None
        first, second = self.scaled in (Scales.BOTH, Scales.ROWS), self.scaled is not Scales.NONE
        return [
            Operand("target0", self.target_dtype),
            Operand("target1", self.target_dtype),
            Operand("source0", self.source_dtype),
            Operand("source1", self.source_dtype),
            Operand("initial0", initial),
            Operand("initial1", initial),
            Operand("batch_sizes", torch.int64 if self.masked else None),
            Operand("anew", torch.uint8 if self.reset else None),
            Operand("amax0", torch.int32 if first else None),
            Operand("amax1", torch.int32 if second else None),
        ]


@dataclass(frozen=True)
class PlannedMove:
    """The launch of a `Move`."""

    kernel: NamedKernel

    def __call__(
        self,
        targets: Sequence[Any],
        sources: Sequence[Any],
        initial: Sequence[Any] = (None,),
        batch_sizes: Any = None,
        anew: Any = None,
        amaxes: tuple[Any, Any] = (None, None),
    ) -> None:
        """Copy."""
        self.kernel(
            {
                "target0": targets[0], "target1": targets[-1], "source0": sources[0], "source1": sources[-1],
                "initial0": initial[0], "initial1": initial[-1], "batch_sizes": batch_sizes, "anew": anew,
                "amax0": amaxes[0], "amax1": amaxes[1],
            }
        )  # fmt: skip


def _pair(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """One for each direction; a single one stands for both."""
    return {name.format(0): values[0], name.format(1): values[-1]}
