"""Tokens that are split over the ranks as well: where they are when the ranks' inputs have been gathered.

Every rank has some of the positions along one dimension, as DTensor cuts it: each as many as the first, the last ones
fewer or none. To be gathered they are filled up to the same number; what fills them is a token that is ignored.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....core.errors import InvalidArgument


class TokenSplit(NamedTuple):
    """Tokens of `shape`, split along `dim` over `ranks`. Gathered ones stand in the order of the ranks."""

    shape: tuple[int, ...]
    dim: int
    ranks: int

    @property
    def most(self) -> int:
        """Positions that the first rank has."""
        return -(-self.shape[self.dim] // self.ranks)

    def count(self, rank: int) -> int:
        """Positions that a rank has."""
        return max(0, min(self.most, self.shape[self.dim] - rank * self.most))

    def require(self, rank: int, input: Tensor) -> None:
        """Raise unless this is the rank's part of the input [*shape, H]."""
        if self.dim >= len(self.shape):
            raise InvalidArgument(
                f"target has shape {list(self.shape)}, expected a dimension {self.dim} of tokens to split over ranks",
                "target",
            )
        expected = (*self.shape[: self.dim], self.count(rank), *self.shape[self.dim + 1 :])
        if tuple(input.shape[:-1]) != expected:
            raise InvalidArgument(
                f"input has shape {list(input.shape)}, expected [{', '.join(map(str, expected))}, H]: the part of rank "
                f"{rank} of {self.ranks} of tokens {list(self.shape)}, split along dimension {self.dim}",
                "input",
            )

    def filled(self, input: Tensor) -> Tensor:
        """A rank's part of the input with as many positions as the first one's."""
        missing = self.most - input.shape[self.dim]
        if not missing:
            return input.contiguous()
        sizes = (*input.shape[: self.dim], missing, *input.shape[self.dim + 1 :])
        return torch.cat([input, input.new_zeros(sizes)], self.dim)

    def in_order_of_ranks(self, tokens: Tensor, fill: int) -> Tensor:
        """Numbers of all tokens [*shape] as the gathered input has them, one after the other."""
        missing = self.most * self.ranks - self.shape[self.dim]
        if missing:
            sizes = (*self.shape[: self.dim], missing, *self.shape[self.dim + 1 :])
            tokens = torch.cat([tokens, tokens.new_full(sizes, fill)], self.dim)
        before, behind = self.shape[: self.dim], self.shape[self.dim + 1 :]
        return tokens.reshape(*before, self.ranks, self.most, *behind).movedim(self.dim, 0).reshape(-1)

    def back(self, tokens: Tensor) -> Tensor:
        """Numbers of the gathered tokens as [*shape], without those that filled it up."""
        before, behind = self.shape[: self.dim], self.shape[self.dim + 1 :]
        whole = tokens.view(self.ranks, *before, self.most, *behind).movedim(0, self.dim)
        return whole.flatten(self.dim, self.dim + 1).narrow(self.dim, 0, self.shape[self.dim])

    def part(self, rank: int, rows: Tensor) -> Tensor:
        """Of the rows [most tokens, H] of a rank those of its part of the input."""
        sizes = (*self.shape[: self.dim], self.most, *self.shape[self.dim + 1 :], rows.shape[-1])
        return rows.view(sizes).narrow(self.dim, 0, self.count(rank))
