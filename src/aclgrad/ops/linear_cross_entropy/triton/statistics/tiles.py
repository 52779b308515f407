"""What every tile of the vocabulary says of every token, until it is merged: pieces of the workspace."""

from __future__ import annotations

import torch
import triton

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, I32
from aclgrad.gpu.products import TILE

from ..options import LogitOptions


class TileStatistics:
    """For each token and tile the largest logit and Σ exp(logit − largest); for each token its own target's logit.

    Where they are needed, also Σ class weight · (logit − largest) of a tile (`classed`) and
    Σ exp(logit − largest) · (logit − largest) but of the own target (`mixed`); and for each token the first tile of
    those that were searched together for its own target, or -1 if one of their columns is as large and precedes it
    (`ahead`). Where logits are `kept`, the pass that makes p of them does that search. If it `borrows`, the sums that
    options want are in memory that the caller lends until they are merged.
    """

    def __init__(
        self, tokens: int, vocabulary: int, scratch: Scratch, options: LogitOptions, *, kept: bool = False,
        borrows: bool = False,
    ) -> None:  # fmt: skip
        self.count, self.options = triton.cdiv(vocabulary, TILE[1]), options
        self.block = triton.next_power_of_2(self.count)
        self._borrowed = options.tile_sums if borrows else ()
        of_tiles = ("maxima", "sums", *(() if borrows else options.tile_sums))
        self._pieces = {name: scratch.tensor((tokens, self.count), F32) for name in of_tiles}
        self._pieces["chosen"] = scratch.tensor((tokens,), F32)
        if options.statistics and not kept:
            self._pieces["ahead"] = scratch.tensor((tokens,), I32)

    def dtype(self, name: str) -> torch.dtype | None:
        """Of a statistic; None of one that is not needed."""
        if name in self._borrowed:
            return F32
        piece = self._pieces.get(name)
        return None if piece is None else piece.dtype

    def views(self, tokens: int, workspace: torch.Tensor, lent: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Those that there are, [tokens, tiles] or [tokens]; `lent` is gapless memory of any dtype."""
        views = {name: piece.view(workspace)[:tokens] for name, piece in self._pieces.items()}
        if self._borrowed:
            assert lent is not None
            size = len(self._borrowed) * tokens * self.count
            sums = lent.view(-1)[: size * F32.itemsize // lent.element_size()].view(F32)
            views |= zip(self._borrowed, sums.view(-1, tokens, self.count), strict=True)
        return views


def part(statistics: dict[str, torch.Tensor], tile: int) -> dict[str, torch.Tensor]:
    """The statistics of the tiles from this one on."""
    return {name: each[:, tile:] if each.dim() == 2 else each for name, each in statistics.items()}


class Strip:
    """Memory for the logits of a few tokens that nobody wants to keep, or not as they are."""

    def __init__(self, tokens: int, width: int, dtype: torch.dtype, budget: int, scratch: Scratch) -> None:
        """No more than `budget` bytes, if that is a token."""
        self.dtype = dtype
        self.rows = min(tokens, max(1, budget // (width * dtype.itemsize)))
        self._piece = scratch.tensor((self.rows * width,), dtype)

    def __call__(self, rows: int, columns: int, workspace: torch.Tensor) -> torch.Tensor:
        """Its memory as gapless rows of this many columns."""
        return self._piece.view(workspace)[: rows * columns].view(rows, columns)
