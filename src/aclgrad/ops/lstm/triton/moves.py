"""Copies between tensors of any strides, as the products and the loop want their operands.

A job is a pair of copies of the same shape [T, N, C], one for either direction (or for dh and dc, …); a job may also
be a single copy. With `SHIFT` the source is a chain's state and the target the state each step started from: the
initial state in front for the forward direction, behind for the reverse one.
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
from aclgrad.gpu.launch import Kernel, jit
from aclgrad.gpu.maths import undefined_if_infinite

from ..spec import LstmDims
from .fp16_split.products import LEAST_PEAK, unscaled

TILE = 2048
"""Elements a program copies."""

Strides = tuple[int, ...]


@jit
def copy(  # type: ignore[no-untyped-def]
    target, source, first, sizes, peak0, peak1, T, N, C, to, of, initial, apart, ahead,
    CLEAN: tl.constexpr, SHARES: tl.constexpr, BY_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One tile of one copy; row r is (t, n) = (r // N, r % N). The source of step t is step t + ahead."""
    across = tl.cdiv(C, COLUMNS)
    tile = tl.program_id(0).to(tl.int64)
    rows = (tile // across) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    t, n = rows // N, rows % N
    inside = (t < T) & (columns < C)
    wanted = inside
    if sizes is not None:
        wanted = inside & (tl.load(sizes + t, mask=inside, other=0) > n)
    if first is None:
        at = source + t * of[0] + n * of[1] + columns * of[2]
        value = tl.load(at, mask=wanted, other=0.0).to(tl.float32)
        for share in tl.static_range(1, SHARES):
            value += tl.load(at + share * apart, mask=wanted, other=0.0)
    else:
        before = (t + ahead >= 0) & (t + ahead < T)
        value = tl.load(source + (t + ahead) * of[0] + n * of[1] + columns * of[2], mask=wanted & before, other=0.0).to(
            tl.float32
        )
        start = tl.load(first + n * initial[0] + columns * initial[1], mask=wanted & ~before, other=0.0)
        value = tl.where(before, value, start.to(tl.float32))
    if peak0 is not None:
        if BY_ROWS:
            value = unscaled(value, tl.load(peak0 + (t * of[0] + n * of[1]) // C, mask=t < T, other=LEAST_PEAK))
        else:
            value = unscaled(value, tl.load(peak0))
    if peak1 is not None:
        value = unscaled(value, tl.load(peak1))
    if CLEAN:
        value = undefined_if_infinite(value)
    tl.store(target + t * to[0] + n * to[1] + columns * to[2], value.to(target.dtype.element_ty), mask=inside)


@jit
def copy_pair(  # type: ignore[no-untyped-def]
    target0, target1, source0, source1, first0, first1, sizes, peak0, peak1,
    T, N, C, to0, to1, of0, of1, initial0, initial1, apart,
    CLEAN: tl.constexpr, SHARES: tl.constexpr, BY_ROWS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Both copies of a job, the grid's second axis telling which."""
    if tl.program_id(1) == 0:
        copy(target0, source0, first0, sizes, peak0, peak1, T, N, C, to0, of0, initial0, apart, -1,
             CLEAN, SHARES, BY_ROWS, ROWS, COLUMNS)  # fmt: skip
    else:
        copy(target1, source1, first1, sizes, peak0, peak1, T, N, C, to1, of1, initial1, apart, 1,
             CLEAN, SHARES, BY_ROWS, ROWS, COLUMNS)  # fmt: skip


class Rows:
    """How (t, n) is counted through: time-major, or batch-major where `input`, `dy` and `dx` are."""

    def __init__(self, dims: LstmDims) -> None:
        self.count = dims.T * dims.N
        self.by_batch = dims.batch_first and not dims.variable
        self.t, self.n = (1, dims.T) if self.by_batch else (dims.N, 1)
        self.batch, self.variable = dims.N, dims.variable

    def of(self, meta: Meta) -> Strides:
        """Strides (t, n, feature) of a tensor shaped as `input`."""
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
    """A job: [T, N, C] from each source to its target, with their strides in elements.

    `initial` are the strides of the initial states of a shifted job, `clean` makes infinities NaN, `masked` writes
    zeros where `sizes` says that there is no data, `scaled` tells which scales of two operands are taken off their
    product, `shares` how many sources, `apart` elements from each other, are added.
    """

    shape: tuple[int, int, int]
    targets: tuple[Strides, ...]
    sources: tuple[Strides, ...]
    target_dtype: torch.dtype
    source_dtype: torch.dtype
    initial: tuple[Strides, ...] = ()
    clean: bool = True
    masked: bool = False
    scaled: Scales = Scales.NONE
    shares: int = 1
    apart: int = 0

    def kernel(self, device: torch.device) -> Kernel:
        """Called with targets, sources, initial states and sizes; see `pointers`."""
        steps, batch, width = self.shape
        crossed = width > 1 and any(of[-1] != 1 for of in (*self.sources, *self.targets))
        columns = min(64 if crossed else TILE // 4, triton.next_power_of_2(max(width, 1)))
        rows = min(TILE // columns, triton.next_power_of_2(max(steps * batch, 1)))
        tiles = triton.cdiv(steps * batch, rows) * triton.cdiv(width, columns)
        return Kernel(
            copy_pair,
            (tiles, len(self.targets)),
            device,
            pointers(
                [self.target_dtype] * len(self.targets),
                [self.source_dtype] * len(self.sources),
                [self.source_dtype] * len(self.initial),
                torch.int64 if self.masked else None,
                (
                    torch.int32 if self.scaled in (Scales.BOTH, Scales.ROWS) else None,
                    torch.int32 if self.scaled is not Scales.NONE else None,
                ),
            ),
            (
                steps, batch, width, *_two(self.targets), *_two(self.sources), *_two(self.initial or ((0, 0),)),
                self.apart,
            ),
            {
                "CLEAN": self.clean, "SHARES": self.shares, "BY_ROWS": self.scaled is Scales.ROWS, "ROWS": rows,
                "COLUMNS": columns,
            },
        )  # fmt: skip


def pointers(
    targets: Sequence[Any],
    sources: Sequence[Any],
    initial: Sequence[Any] = (),
    sizes: Any = None,
    peaks: tuple[Any, Any] = (None, None),
) -> tuple[Any, ...]:
    """The pointers of `copy_pair`; a single copy stands for both."""
    return (*_two(targets), *_two(sources), *(_two(initial) if initial else (None, None)), sizes, *peaks)


def _two(values: Sequence[Any]) -> tuple[Any, Any]:
    return values[0], values[-1]
