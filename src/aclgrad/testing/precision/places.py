"""Where in a tensor the errors lie: the largest one along each dimension, and in the cells of a map.

A map's rows are all leading dimensions together, its columns the last one. Errors are absolute; one that is misplaced
(NaN or infinite where the truth is not, or the reverse) counts as infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from .statistics import Piece

BINS = 1 << 12  # along a dimension
ROWS, COLUMNS = 48, 96  # of a map
RANGES = 6  # that are told


class Places:
    """Largest errors by place, of a tensor of this shape. A cell stands for `widths` indices, the last for the rest."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.last, self.rows = (shape[-1] if shape else 1), prod(shape[:-1])
        self.widths = [max(1, -(-size // BINS)) for size in shape]
        self.height, self.width = max(1, -(-self.rows // ROWS)), max(1, -(-self.last // COLUMNS))
        cells = [-(-size // width) for size, width in zip(shape, self.widths, strict=True)]
        self.along = [torch.zeros(count, dtype=torch.float64) for count in cells]
        self.map = torch.zeros(-(-self.rows // self.height), -(-self.last // self.width), dtype=torch.float64)

    def look(self, piece: Piece) -> None:
        """At the next piece."""
        errors = piece.elements.error
        if piece.finite is not None:
            errors = piece.spread(errors, torch.where(piece.misplaced, torch.inf, 0.0))
        row, column = divmod(piece.start, self.last)
        if self.last <= len(errors):  # whole rows: the first and the last one are filled up with zeros
            errors = pad(errors, (column, -(len(errors) + column) % self.last)).view(-1, self.last)
            self._add(row, 0, errors)
            return
        while len(errors):
            part, errors = errors[: self.last - column], errors[self.last - column :]
            offset = column % self.width
            self._add(row, column // self.width, pad(part, (offset, 0))[None])
            row, column = row + 1, 0

    def join(self, later: Places) -> None:
        """Keep the larger ones."""
        self.map = torch.maximum(self.map, later.map)
        self.along = [torch.maximum(mine, other) for mine, other in zip(self.along, later.along, strict=True)]

    def beyond(self, allowed: float) -> list[str]:
        """In words, the dimensions along which only some indices have errors beyond what is allowed.

        That is one or two ranges, or else at most half of all: what is scattered over most of them is no place.
        """
        told = []
        for d, (line, size, width) in enumerate(zip(self.along, self.shape, self.widths, strict=True)):
            bad = [k for k, error in enumerate(line.tolist()) if error > allowed]
            spans = _spans(bad, width, size)
            if 0 < len(bad) < len(line) and (len(spans) <= 2 or 2 * len(bad) <= len(line)):
                told.append(f"dimension {d} (of {size}): {_in_words(spans)}")
        return told

    def strip(self, dimension: int) -> Tensor:
        """The largest errors along a dimension, in no more cells than a map has columns."""
        line = self.along[dimension]
        width = max(1, -(-len(line) // COLUMNS))
        return pad(line, (0, -len(line) % width)).view(-1, width).amax(1)

    def _add(self, row: int, cell: int, errors: Tensor) -> None:
        """Errors [n, columns] of n rows, from the first column of a cell on."""
        rows = torch.arange(row, row + len(errors))
        if self.shape:
            at = torch.arange(cell * self.width, cell * self.width + errors.shape[1]) // self.widths[-1]
            self.along[-1].scatter_reduce_(0, at, errors.amax(0), "amax")
        if self.width > 1:
            errors = pad(errors, (0, -errors.shape[1] % self.width)).view(len(errors), -1, self.width).amax(2)
        columns = slice(cell, cell + errors.shape[1])
        self.map[:, columns].scatter_reduce_(0, (rows // self.height)[:, None].expand_as(errors), errors, "amax")
        of_row, below = errors.amax(1), self.rows
        for line, size, width in zip(self.along[:-1], self.shape[:-1], self.widths[:-1], strict=True):
            below //= size
            line.scatter_reduce_(0, rows // below % size // width, of_row, "amax")


def _spans(bad: Sequence[int], width: int, size: int) -> list[list[int]]:
    """Cells as ranges of indices, from the first to behind the last."""
    spans: list[list[int]] = []
    for cell in bad:
        if spans and spans[-1][1] == cell * width:
            spans[-1][1] = min((cell + 1) * width, size)
        else:
            spans.append([cell * width, min((cell + 1) * width, size)])
    return spans


def _in_words(spans: Sequence[Sequence[int]]) -> str:
    """The first few ranges."""
    told = [f"{a}" if b == a + 1 else f"{a}–{b - 1}" for a, b in spans[:RANGES]]
    return ", ".join(told) + (f" and {len(spans) - RANGES} more ranges" if len(spans) > RANGES else "")
