"""The matrices that products of the vendor's library read and write."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32
from aclgrad.gpu.products import multiply

from .choose import writes_output
from .layout import LEADING, round_up, row_major


class Factor:
    """A matrix that products read: as it lies in memory if its rows are, else packed into the workspace when needed."""

    __slots__ = ("_piece", "rows", "stride")

    def __init__(self, meta: Meta, rows: int, scratch: Scratch) -> None:
        """`rows` is how many of them are asked for at a time, at most."""
        self._piece: Piece | None = None
        self.rows, self.stride = rows, meta.strides[0]
        if not row_major(meta):
            self.stride = round_up(meta.shape[1], LEADING)
            self._piece = scratch.tensor((rows, self.stride), meta.dtype)

    @property
    def packs(self) -> bool:
        """Whether rows are packed before they are read."""
        return self._piece is not None

    def __call__(self, rows: torch.Tensor, workspace: torch.Tensor) -> torch.Tensor:
        """These rows of the matrix, for a product to read."""
        if self._piece is None:
            return rows
        return self._piece.view(workspace)[: rows.shape[0], : rows.shape[1]].copy_(rows)


class GradientSums:
    """One of the two gradients: where its sums are kept, in the output or in the workspace (`writes_output`)."""

    __slots__ = ("_rows", "_sums")

    def __init__(
        self, meta: Meta, heights: Sequence[int], additions: int, scratch: Scratch, *, most_bytes: int | None = None
    ) -> None:
        """`heights` are the rows that are summed at a time, `additions` how many terms each of them has.

        `most_bytes` is what the sums may take, if that is limited.
        """
        in_workspace = [rows for rows in heights if not writes_output(meta, rows, additions, most_bytes)]
        self._rows = max(in_workspace, default=0)
        self._sums = scratch.tensor((self._rows, meta.shape[1]), F32) if self._rows else None

    def __call__(
        self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, workspace: torch.Tensor, *, first: bool, last: bool,
        begun: bool = False,
    ) -> None:  # fmt: skip
        """Add a · b to the rows of the gradient that `out` is.

        The first addition overwrites what is there, unless somebody else has `begun` these rows.
        """
        rows = len(out)
        sums = out if self._sums is None or rows > self._rows else self._sums.view(workspace)[:rows]
        if first and begun and sums is not out:
            sums.copy_(out)
        multiply(sums, a, b, add=begun or not first)
        if last and sums is not out:
            out.copy_(sums)
