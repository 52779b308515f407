"""Packed sequences as operators take them: rows as they lie, or every step padded to the whole batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.errors import InvalidArgument


class Packing(NamedTuple):
    """How the rows of a packed sequence come to an operator: as they are, or among T·N padded ones."""

    batch: int
    batch_sizes: Tensor  # [T] on the data's device
    places: Tensor | None  # of the padded tensor, in packed order; None if nothing is padded

    @classmethod
    def of(cls, batch_sizes: Tensor, data: Tensor, *, keep: bool = False) -> Packing:
        """From the counts of a `PackedSequence`, which live on the CPU, and its rows; to `keep` these, or to pad."""
        name = "input.batch_sizes"
        if batch_sizes.dim() != 1 or not len(batch_sizes):
            raise InvalidArgument(f"{name} has shape {list(batch_sizes.shape)}, expected at least one step", name)
        batch = int(batch_sizes[0])
        require_packed(batch_sizes, len(data), batch, name, "input.data")
        if keep:
            return cls(batch, batch_sizes, None)
        present = batch_sizes[:, None] > torch.arange(batch, device=batch_sizes.device)
        return cls(batch, batch_sizes.to(data.device), present.flatten().nonzero().flatten().to(data.device))

    @property
    def is_kept(self) -> bool:
        """Whether operators take the rows as they lie."""
        return self.places is None

    def taken(self, data: Tensor) -> Tensor:
        """[total length, F] as an operator takes it: so, or as [T·N, F], zeros where a sequence has ended."""
        if self.places is None:
            return data
        steps = self.batch_sizes.shape[0]
        return data.new_zeros(steps * self.batch, data.shape[1]).index_copy(0, self.places, data)

    def taken_flags(self, flags: Tensor) -> Tensor:
        """[total length] as an operator takes it: so, or as [T, N], False where a sequence has ended."""
        if self.places is None:
            return flags
        steps = self.batch_sizes.shape[0]
        return flags.new_zeros(steps * self.batch).index_copy(0, self.places, flags).view(steps, self.batch)

    def given(self, output: Tensor) -> Tensor:
        """An operator's output, [total length, F] or [T, N, F], as [total length, F]."""
        return output if self.places is None else output.flatten(0, -2).index_select(0, self.places)

    def last_places(self) -> Tensor:
        """Among the rows that an operator takes, the last one of each sequence [N]."""
        sequence = torch.arange(self.batch, device=self.batch_sizes.device)
        steps = self.batch_sizes.shape[0]
        last = steps - 1 - torch.searchsorted(self.batch_sizes.flip(0), sequence, right=True)
        if self.places is not None:
            return last * self.batch + sequence
        return (self.batch_sizes.cumsum(0) - self.batch_sizes)[last] + sequence


def require_packed(batch_sizes: Tensor, total: int, batch: int, name: str, data: str) -> None:
    """Counts of `batch` packed sequences that have `total` rows together."""
    sizes = batch_sizes.tolist()
    _require_counts(sizes, batch, name)
    if sum(sizes) != total:  # rows would move to other steps, or be missing
        raise InvalidArgument(f"{name} add up to {sum(sizes)}, expected {total} like the rows of {data}", name)


def require_lengths(batch_sizes: Tensor, batch: int, name: str = "batch_sizes") -> None:
    """Sequences sorted by decreasing length: counts that never rise, between 0 and N."""
    _require_counts(batch_sizes.tolist(), batch, name)


def _require_counts(sizes: list[int], batch: int, name: str) -> None:
    if not sizes or (sizes[0] <= batch and sizes[-1] >= 0 and sizes == sorted(sizes, reverse=True)):
        return
    for t, size in enumerate(sizes):
        if size < 0 or size > max(batch, 0):
            raise InvalidArgument(f"{name}[{t}] is {size}, expected 0 to {max(batch, 0)}", name)
        if t and size > sizes[t - 1]:
            raise InvalidArgument(
                f"{name}[{t}] is {size} after {sizes[t - 1]}, expected values that never increase", name
            )
