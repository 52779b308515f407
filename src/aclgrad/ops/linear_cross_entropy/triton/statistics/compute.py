"""Statistics of logits: each token's largest logit, Σ exp(logit − largest) and the logit of its target.

They are found tile by tile or chunk by chunk of the vocabulary, inside the product that makes the logits
(`hopper_product.py`) or in a pass over what the vendor's library made of it (`row_pass.py`), and then merged
(`merge.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32, I64, Call
from aclgrad.gpu.launch import few
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.products import TILE, multiply_in_parts

from ..choose import LINE, Chunk
from ..choose_rows import SPARE_STATISTICS_STRIP, STATISTICS_STRIP, fuses_logits, is_small, packed_tokens
from ..columns import Columns, ColumnVectors
from ..layout import aligned, ceil_div, row_major
from ..options import LogitOptions
from ..products import Factor, weight_factor
from ..tokens import of_rows
from .row_pass import ROUNDING, row_statistics
from .tiles import Strip, TileStatistics, part

if TYPE_CHECKING:
    from .hopper_product import LogitsProduct

SPAN = 32
"""Tiles of a row that a program takes in a pass."""


class Statistics:
    """Statistics of tokens, and their logits where those are wanted, into the memory of `tiles`.

    Unless fused, the library's product goes straight into logits that are wanted in order, else into a strip. That is
    float32 for small products: the library may cut their sums and round the parts. `exact` logits never leave float32
    but to be kept, less the largest of their tile, in a half type.
    """

    def __init__(
        self, tokens: int, x: Factor, w: Factor, weight: Meta, logits: Meta | None, tiles: TileStatistics,
        scratch: Scratch, first: int = 0, *, exact: bool = False, strip: Strip | None = None,
    ) -> None:  # fmt: skip
        """`weight` and `logits` may be of a part of the vocabulary, which begins at row `first`.

        A strip that is given serves others as well; one of its own is made otherwise, where it is needed.
        """
        vocabulary, features = weight.shape
        self._first, self._exact = first, exact
        self._dtype, self._device = weight.dtype, weight.device
        self._tokens, self._w, self._tiles = tokens, w, tiles
        in_order = logits is not None and row_major(logits)
        fuses = fuses_logits(weight, tokens) and x.is_aligned and w.is_aligned and (logits is None or in_order)
        self._shifts = exact and logits is not None and self._dtype != F32
        small = is_small(tokens, vocabulary, self._device)
        needed = small or not in_order or self._shifts
        self.strip = strip if needed else None
        if needed and strip is None:
            wide = exact or small
            budget = SPARE_STATISTICS_STRIP if fuses else STATISTICS_STRIP
            self.strip = Strip(tokens, min(vocabulary, w.rows), F32 if wide else self._dtype, budget, scratch)
        self._rows = min(tokens, self.strip.rows) if self.strip else tokens
        self._writes_logits = logits is not None and (self.strip is not None or tiles.options.changes_logits)
        self._chunks = [Chunk(0, tokens, v, min(v + w.rows, vocabulary)) for v in range(0, vocabulary, w.rows)]
        self._passes = [self._plan_passes(chunk, logits) for chunk in self._chunks]
        self._fused_chunks = self._chunks if w.packs else [Chunk(0, tokens, 0, vocabulary)]
        self._fused = self._plan_fused(x, logits, features) if fuses else []

    def _plan_fused(self, x: Factor, logits: Meta | None, features: int) -> list[LogitsProduct]:
        from .hopper_product import LogitsProduct

        strides = (x.stride, self._w.stride, None if logits is None else logits.strides[0])
        return [
            LogitsProduct(self._placed(chunk), features, strides, self._tiles, self._exact, self._dtype, self._device)
            for chunk in self._fused_chunks
        ]

    def _placed(self, chunk: Chunk) -> Chunk:
        """The chunk in the whole vocabulary."""
        return chunk._replace(v0=self._first + chunk.v0, v1=self._first + chunk.v1)

    def _plan_passes(self, chunk: Chunk, logits: Meta | None) -> list[NamedKernel]:
        """The passes over a chunk's strips, which are cut along the tokens."""
        options = self._tiles.options
        copied = logits if self._writes_logits else None
        names = ("maxima", "sums", "chosen", "classed", "mixed", "ahead")
        operands = (
            Operand("source", self.strip.dtype if self.strip else self._dtype),
            Operand("logits", copied and copied.dtype),
            Operand("own", I64),
            Operand("biases", F32 if options.bias else None),
            Operand("classes", F32 if options.weighs_classes else None),
            *(Operand(name, self._tiles.dtype(name)) for name in names),
        )
        row, column = copied.strides if copied else (0, 0)
        numbers = {
            "first": self._placed(chunk).v0,
            "columns": chunk.columns,
            "source_row": logits.strides[0] if self.strip is None and logits is not None else chunk.columns,
            "logits_row": row,
            "logits_column": column,
            "tiles_row": self._tiles.count,
            **options.logit_numbers(self._dtype),
        }
        constants = {
            "ROUNDING": ROUNDING[F32 if self._exact else self._dtype], "EXACT": self._exact, "SHIFTS": self._shifts,
            "PRECISE": self._dtype == F32, "SPAN": SPAN, "WIDTH": TILE[1], "BLOCK": LINE,
        }  # fmt: skip
        spans = ceil_div(chunk.columns, SPAN * TILE[1])
        return [
            NamedKernel(
                row_statistics, (min(self._rows, self._tokens - t), spans), self._device, operands, numbers, constants,
                unknown=few(self._tokens * chunk.columns), num_warps=8,
            )
            for t in range(0, self._tokens, self._rows)
        ]  # fmt: skip

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, logits: torch.Tensor | None, own: torch.Tensor,
        columns: ColumnVectors, workspace: torch.Tensor, lent: torch.Tensor | None = None, start: int = 0,
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        """Compute; returns the views of the tiles' statistics, in the workspace and in what is lent for them.

        The tokens are those from `start` on.
        """
        views = of_rows(self._tiles.views(start + self._tokens, workspace, lent), slice(start, None))
        if self._fused and aligned(x, weight, *([] if logits is None else [logits])):
            for (_, _, v0, v1), fused in zip(self._fused_chunks, self._fused, strict=True):
                w, tile = self._w(weight[v0:v1], workspace), (self._first + v0) // TILE[1]
                out = None if logits is None else logits[:, v0:v1]
                fused(x, w, out, {**columns, **part(views, tile), "own": own})
            return views
        for (_, _, v0, v1), passes in zip(self._chunks, self._passes, strict=True):
            w, tiles = self._w(weight[v0:v1], workspace), part(views, (self._first + v0) // TILE[1])
            for index, kernel in enumerate(passes):
                rows = slice(index * self._rows, min((index + 1) * self._rows, self._tokens))
                wanted = None if logits is None else logits[rows, v0:v1]
                source = wanted if self.strip is None else self.strip(rows.stop - rows.start, v1 - v0, workspace)
                assert source is not None  # a strip, or logits in order
                multiply_in_parts(source, x[rows], w.t())
                copied = wanted if self._writes_logits else None
                kernel({**columns, **of_rows(tiles, rows), "source": source, "logits": copied, "own": own[rows]})
        return views

    def describe(self) -> str:
        """How logits are made, in words."""
        made = "in one Hopper kernel with their statistics" if self._fused else "by the library, then their statistics"
        strips = f", in strips of {self._rows:,} tokens" if self.strip is not None and not self._fused else ""
        return f"logits {made}{strips}"


class ExactStatistics:
    """Statistics of all logits of a call, which never leave float32 and are not kept."""

    def __init__(self, call: Call, options: LogitOptions, scratch: Scratch) -> None:
        tokens, _, vocabulary = call.dims
        self._names = tuple(call.spec.params)
        self._columns = Columns(call, options, scratch)
        rows = packed_tokens(call["input"])
        self._parts = [slice(t, min(t + rows, tokens)) for t in range(0, tokens, rows)]
        self._x = Factor(call["input"], min(rows, tokens), scratch)
        w = weight_factor(call["weight"], tokens, scratch)
        self.tiles = TileStatistics(tokens, vocabulary, scratch, options)
        strip, self._statistics = None, {}
        for height in sorted({here.stop - here.start for here in self._parts}, reverse=True):
            made = Statistics(height, self._x, w, call["weight"], None, self.tiles, scratch, exact=True, strip=strip)
            strip = strip or made.strip
            self._statistics[height] = made
        self.describe = next(iter(self._statistics.values())).describe

    def __call__(
        self, args: Sequence[Any], outs: Sequence[Any], own: torch.Tensor, workspace: torch.Tensor
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Compute; what the call was given by name, and what is known of columns and tiles."""
        given = dict(zip(self._names, (*args, *outs), strict=True))
        columns = self._columns(args, outs, workspace)
        for here in self._parts:
            x, compute = self._x(given["input"][here], workspace), self._statistics[here.stop - here.start]
            compute(x, given["weight"], None, own[here], columns, workspace, start=here.start)
        return given, {**columns, **self.tiles.views(len(own), workspace)}
