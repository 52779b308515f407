"""What every tile of the vocabulary says of every token, until it is merged: pieces of the workspace."""

from __future__ import annotations

import torch
import triton

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32
from aclgrad.gpu.products import TILE


class TileStatistics:
    """For each token and tile the largest logit and Σ exp(logit − largest); for each token its own target's logit."""

    def __init__(self, tokens: int, vocabulary: int, scratch: Scratch) -> None:
        self.count = triton.cdiv(vocabulary, TILE[1])
        self.block = triton.next_power_of_2(self.count)
        shapes = {"maxima": (tokens, self.count), "sums": (tokens, self.count), "chosen": (tokens,)}
        self._pieces = {name: scratch.tensor(shape, F32) for name, shape in shapes.items()}

    def views(self, tokens: int, workspace: torch.Tensor) -> dict[str, torch.Tensor]:
        """`maxima` and `sums` [tokens, tiles], and the `chosen` logits of the own targets [tokens]."""
        return {name: piece.view(workspace)[:tokens] for name, piece in self._pieces.items()}


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
