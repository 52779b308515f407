"""The matrices that products of the vendor's library read and write."""

from __future__ import annotations

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.meta import Meta
from aclgrad.core.spec import F32
from aclgrad.gpu.products import multiply_in_parts

from .choose_rows import Terms, packed_columns, reads_as_it_lies, sums_of
from .layout import LEADING, round_up, row_major


class Factor:
    """A matrix that products read: as it lies in memory if its rows are in order, else packed when needed."""

    __slots__ = ("_piece", "is_aligned", "rows", "stride")

    def __init__(self, meta: Meta, rows: int, scratch: Scratch, *, as_it_lies: bool = False) -> None:
        """`rows` is how many of them are asked for at a time, at most. In order it may be read `as_it_lies`."""
        self._piece: Piece | None = None
        self.rows, self.stride = rows, meta.strides[0]
        if not row_major(meta) and not as_it_lies:
            self.stride = round_up(meta.shape[1], LEADING)
            self._piece = scratch.tensor((rows, self.stride), meta.dtype)
        self.is_aligned = self.packs or row_major(meta)  # where rows begin, if the first one does

    @property
    def packs(self) -> bool:
        """Whether rows are packed before they are read."""
        return self._piece is not None

    def __call__(self, rows: torch.Tensor, workspace: torch.Tensor) -> torch.Tensor:
        """These rows of the matrix, for a product to read."""
        if self._piece is None:
            return rows
        return self._piece.view(workspace)[: rows.shape[0], : rows.shape[1]].copy_(rows)

    def wide(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows that the factor gave, if they are packed with all that was reserved for them, which may be anything.

        As the right-hand side of a product they make it faster, and columns of its result that nobody reads.
        """
        return rows if self._piece is None else rows.as_strided((len(rows), self.stride), (self.stride, 1))


def weight_factor(weight: Meta, tokens: int, scratch: Scratch) -> Factor:
    """The weight, as logits of so many tokens want it."""
    lies = reads_as_it_lies(weight, tokens)
    return Factor(weight, packed_columns(weight, tokens), scratch, as_it_lies=lies)


class GradientSums:
    """One of the two gradients: where its sums are kept, in the output or in the workspace (`sums_of`)."""

    __slots__ = ("_piece", "_sums")

    def __init__(self, meta: Meta, terms: Terms, scratch: Scratch) -> None:
        self._sums = sums_of(meta, terms)
        self._piece = scratch.tensor(self._sums[:2], F32) if self._sums else None

    def __call__(
        self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, workspace: torch.Tensor, *, first: bool, last: bool,
        begun: bool = False,
    ) -> None:  # fmt: skip
        """Add a · b to the rows of the gradient that `out` is; `b` may be `Factor.wide`.

        The first addition overwrites what is there, unless somebody else has `begun` these rows.
        """
        (rows, features), add = out.shape, begun or not first
        if self._sums is None or self._piece is None or (self._sums.whole and rows > self._sums.rows):
            multiply_in_parts(out, a, b[:, :features], add=add)
            return
        b = b[:, : self._sums.width]
        sums = self._piece.view(workspace)[:, : b.shape[1]]
        if self._sums.whole:
            sums = sums[:rows]
            if first and begun:
                sums[:, :features].copy_(out)
            multiply_in_parts(sums, a, b, add=add)
            if last:
                out.copy_(sums[:, :features])
            return
        for start in range(0, rows, self._sums.rows):
            here = slice(start, min(start + self._sums.rows, rows))
            some = sums[: here.stop - start]
            if add:
                some[:, :features].copy_(out[here])
            multiply_in_parts(some, a[here], b, add=add)
            out[here].copy_(some[:, :features])
