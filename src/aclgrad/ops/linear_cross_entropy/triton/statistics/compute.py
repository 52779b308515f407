"""Statistics of logits on GPUs: each token's largest logit, Σ exp(logit − largest) and the logit of its target.

They are found tile by tile or chunk by chunk of the vocabulary, inside the product that makes the logits
(`triton_logits`, on Hopper) or in a pass over what the vendor's library made of it, and then merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import BF16, F16, F32, I64
from aclgrad.gpu.launch import Kernel, jit, multiprocessors
from aclgrad.gpu.products import multiply

from ..choose import MIB, TILE, Chunk, aligned, ceil_div, on_hopper, row_major
from ..probabilities.elementwise import exponential
from ..products import Operand

if TYPE_CHECKING:
    from .hopper_product import FusedLogits

LINE = 2048  # columns that a program takes at a time
STRIP = 64 * MIB  # bytes of logits that nobody wants to keep
STRIP_AS_RESERVE = 16 * MIB  # where such logits are needed only if an address is odd
STRIP_COLUMNS = 8192
SPAN = STRIP_COLUMNS // TILE[1]  # tiles of a strip
ROUNDING = {F32: 0, F16: 1, BF16: 2}


@jit
def as_rounded(x, ROUNDING: tl.constexpr):  # type: ignore[no-untyped-def]
    """Float32 values as a half type has them."""
    if ROUNDING == 1:
        x = x.to(tl.float16).to(tl.float32)
    if ROUNDING == 2:
        x = x.to(tl.bfloat16).to(tl.float32)
    return x


@jit
def largest(values):  # type: ignore[no-untyped-def]
    """The largest of some values, NaN if one of them is."""
    undefined = tl.max((values != values).to(tl.int32), 0)
    return tl.where(undefined > 0, float("nan"), tl.max(values, 0))


@jit
def row_statistics(  # type: ignore[no-untyped-def]
    source, logits, own, maxima, sums, chosen,
    first, columns, source_row, logits_row, logits_column, stride,
    ROUNDING: tl.constexpr, EXACT: tl.constexpr, SHIFTS: tl.constexpr, SPAN: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics over some columns, of which the first is row `first` of the weight; their copy, if wanted.

    Every line of the columns changes the largest logit, and with it what the sum so far is worth. `EXACT` leaves the
    own target out of the sum. A copy that `SHIFTS` is less the largest logit, which all tiles of the columns then have.
    """
    token = tl.program_id(0).to(tl.int64)
    target = tl.load(own + token) - first
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    start = 0
    while start < columns:
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        x = tl.load(source + token * source_row + column, inside, other=float("-inf")).to(tl.float32)
        x = as_rounded(x, ROUNDING)
        if logits is not None and not SHIFTS:
            at = token * logits_row + column.to(tl.int64) * logits_column
            tl.store(logits + at, x.to(logits.dtype.element_ty), inside)
        here = largest(x)
        higher = tl.where((here > top) | (here != here), here, top)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        if EXACT:
            x = tl.where(column == target, float("-inf"), x)
        total = total * exponential(top - shift, True) + tl.sum(exponential(x - shift, True), 0)
        top = higher
        start += BLOCK
    tl.store(maxima + token * stride, top)
    tl.store(sums + token * stride, total)
    if (target >= 0) & (target < columns):
        x = tl.load(source + token * source_row + target).to(tl.float32)
        tl.store(chosen + token, as_rounded(x, ROUNDING))
    if SHIFTS:
        tile = tl.arange(0, SPAN)
        tl.store(maxima + token * stride + tile, top + tl.zeros((SPAN,), tl.float32), tile * WIDTH < columns)
        shift = tl.where(top == float("-inf"), 0.0, top)
        start = 0
        while start < columns:
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            x = tl.load(source + token * source_row + column, inside, other=0.0) - shift
            at = token * logits_row + column.to(tl.int64) * logits_column
            tl.store(logits + at, x.to(logits.dtype.element_ty), inside)
            start += BLOCK


@jit
def log1p(x):  # type: ignore[no-untyped-def]
    """log(1 + x), as precise for a small x as for others: what 1 + x loses of x is made up for."""
    wide = 1.0 + x
    return tl.where((wide == 1.0) | (wide == float("inf")), x, tl.log(wide) * (x / (wide - 1.0)))


@jit
def merged(maxima, sums, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """(largest logit, Σ exp(logit − largest)) of a token from those of its tiles."""
    tile = tl.arange(0, BLOCK)
    inside = tile < count
    tops = tl.load(maxima + tile, inside, other=float("-inf"))
    totals = tl.load(sums + tile, inside, other=0.0)
    top = largest(tops)
    return top, tl.sum(totals * exponential(tops - top, True), 0)


@jit
def merge_statistics(  # type: ignore[no-untyped-def]
    own, maxima, sums, chosen, logits, logits_max, sum_exp, predicted,
    count, logits_row, logits_column, max_stride, sum_stride, predicted_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token's statistics, and its own target's logit less the largest, or 0.

    That logit is among the `chosen`, unless all logits are there.
    """
    token = tl.program_id(0).to(tl.int64)
    top, total = merged(maxima + token * count, sums + token * count, count, BLOCK)
    row = tl.load(own + token)
    here = row >= 0
    if logits is not None:
        logit = tl.load(logits + token * logits_row + tl.where(here, row, 0) * logits_column).to(tl.float32)
    else:
        logit = tl.load(chosen + token, here, other=0.0)
    tl.store(logits_max + token * max_stride, top)
    tl.store(sum_exp + token * sum_stride, total)
    tl.store(predicted + token * predicted_stride, tl.where(here, logit - top, 0.0))


class Tiles:
    """Room for what every tile of the vocabulary says of every token, and how it is merged."""

    def __init__(self, tokens: int, vocabulary: int, scratch: Scratch) -> None:
        self.count = ceil_div(vocabulary, TILE[1])
        self.block = triton.next_power_of_2(self.count)
        self._pieces = [scratch.tensor((tokens, self.count), F32) for _ in range(2)]
        self._pieces.append(scratch.tensor((tokens,), F32))

    def views(self, tokens: int, workspace: torch.Tensor) -> list[torch.Tensor]:
        """Maxima and sums [tokens, tiles], and logits of the own targets [tokens]."""
        return [piece.view(workspace)[:tokens] for piece in self._pieces]

    def merging(self, tokens: int, logits: Meta | None, strides: Sequence[int], device: torch.device) -> Kernel:
        """A kernel of own targets, the views, logits or None, and three results of these strides."""
        return Kernel(
            merge_statistics, (tokens,), device, [I64, F32, F32, F32, logits and logits.dtype, F32, F32, F32],
            [self.count, *(logits.strides if logits else (0, 0)), *strides], {"BLOCK": self.block},
        )  # fmt: skip


class Strip:
    """Room for the logits of a few tokens that nobody wants to keep, or not as they are."""

    def __init__(self, tokens: int, width: int, dtype: torch.dtype, budget: int, scratch: Scratch) -> None:
        """No more than `budget` bytes, if that is a token."""
        self.dtype = dtype
        self.rows = min(tokens, max(1, budget // (width * dtype.itemsize)))
        self._piece = scratch.tensor((self.rows * width,), dtype)

    def __call__(self, rows: int, columns: int, workspace: torch.Tensor) -> torch.Tensor:
        """Its memory as gapless rows of this many columns."""
        return self._piece.view(workspace)[: rows * columns].view(rows, columns)


class Statistics:
    """Statistics of tokens, and their logits where those are wanted, into the room of `tiles`.

    Unless fused, the library's product goes straight into logits that are wanted in order, else into a strip. That is
    float32 for small products: the library may cut their sums and round the parts. `exact` logits never leave float32
    but to wait, less the largest of their tile, in a half type.
    """

    def __init__(
        self, tokens: int, x: Operand, w: Operand, weight: Meta, logits: Meta | None, tiles: Tiles, scratch: Scratch,
        first: int = 0, *, exact: bool = False, strip: Strip | None = None,
    ) -> None:  # fmt: skip
        """`weight` and `logits` may be of a part of the vocabulary, which begins at row `first`.

        A strip that is given serves others as well; one of its own is made otherwise, where it is needed.
        """
        vocabulary, features = weight.shape
        self._first, self._exact = first, exact
        self._dtype, self._device = weight.dtype, weight.device
        self._tokens, self._w, self._tiles = tokens, w, tiles
        in_order = logits is not None and row_major(logits)
        fuses = features > 0 and on_hopper(self._dtype, self._device) and (logits is None or in_order)
        self._shifts = exact and logits is not None and self._dtype != F32
        small = is_small(tokens, vocabulary, self._device)
        needed = small or not in_order or self._shifts
        self._strip = strip if needed else None
        if needed and strip is None:
            wide = exact or small
            budget = STRIP_AS_RESERVE if fuses else STRIP
            self._strip = Strip(tokens, min(vocabulary, w.rows), F32 if wide else self._dtype, budget, scratch)
        self._rows = min(tokens, self._strip.rows) if self._strip else tokens
        self._chunks = [Chunk(0, tokens, v, min(v + w.rows, vocabulary)) for v in range(0, vocabulary, w.rows)]
        self._passes = [self._plan_passes(chunk, logits) for chunk in self._chunks]
        self._fused_chunks = self._chunks if w.packs else [Chunk(0, tokens, 0, vocabulary)]
        self._fused = self._plan_fused(x, logits, features) if fuses else []

    def _plan_fused(self, x: Operand, logits: Meta | None, features: int) -> list[FusedLogits]:
        from .hopper_product import FusedLogits

        strides = (x.stride, self._w.stride, None if logits is None else logits.strides[0])
        return [
            FusedLogits(
                self._placed(chunk), features, strides, self._tiles.count, self._exact, self._dtype, self._device
            )
            for chunk in self._fused_chunks
        ]

    def _placed(self, chunk: Chunk) -> Chunk:
        """The chunk in the whole vocabulary."""
        return chunk._replace(v0=self._first + chunk.v0, v1=self._first + chunk.v1)

    def _plan_passes(self, chunk: Chunk, logits: Meta | None) -> list[Kernel]:
        """The passes over a chunk's strips, which are cut along the tokens."""
        source = logits.strides[0] if self._strip is None and logits is not None else chunk.v1 - chunk.v0
        copied = logits if self._strip is not None else None
        dtypes = [self._strip.dtype if self._strip else self._dtype, copied and copied.dtype, I64, F32, F32, F32]
        numbers = [
            self._placed(chunk).v0,
            chunk.v1 - chunk.v0,
            source,
            *(copied.strides if copied else (0, 0)),
            self._tiles.count,
        ]
        constants = {
            "ROUNDING": ROUNDING[F32 if self._exact else self._dtype], "EXACT": self._exact, "SHIFTS": self._shifts,
            "SPAN": SPAN, "WIDTH": TILE[1], "BLOCK": LINE,
        }  # fmt: skip
        return [
            Kernel(
                row_statistics, (min(self._rows, self._tokens - t),), self._device, dtypes, numbers, constants,
                num_warps=8,
            )
            for t in range(0, self._tokens, self._rows)
        ]  # fmt: skip

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, logits: torch.Tensor | None, own: torch.Tensor,
        workspace: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        """Compute; returns the views of `Tiles`."""
        maxima, sums, chosen = views = self._tiles.views(self._tokens, workspace)
        if self._fused and aligned(x, weight, *([] if logits is None else [logits])):
            for (_, _, v0, v1), fused in zip(self._fused_chunks, self._fused, strict=True):
                w, tile = self._w(weight[v0:v1], workspace), (self._first + v0) // TILE[1]
                out = None if logits is None else logits[:, v0:v1]
                fused(x, w, out, [own, maxima[:, tile:], sums[:, tile:], chosen])
            return views
        if self._first == 0:  # a chunk says it all in one tile
            maxima.fill_(-torch.inf)
            sums.zero_()
        for (_, _, v0, v1), passes in zip(self._chunks, self._passes, strict=True):
            w, tile = self._w(weight[v0:v1], workspace), (self._first + v0) // TILE[1]
            for index, kernel in enumerate(passes):
                rows = slice(index * self._rows, min((index + 1) * self._rows, self._tokens))
                wanted = None if logits is None else logits[rows, v0:v1]
                source = wanted if self._strip is None else self._strip(rows.stop - rows.start, v1 - v0, workspace)
                assert source is not None  # a strip, or logits in order
                multiply(source, x[rows], w.t())
                copied = None if self._strip is None else wanted
                kernel(source, copied, own[rows], maxima[rows, tile:], sums[rows, tile:], chosen[rows])
        return views


def is_small(tokens: int, vocabulary: int, device: torch.device) -> bool:
    """Whether a product is so small that the library may cut its sums."""
    return ceil_div(tokens, TILE[0]) * ceil_div(vocabulary, TILE[1]) < multiprocessors(device)
