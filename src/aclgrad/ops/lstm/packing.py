"""Packed sequences as the operator takes them: every step padded to the whole batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...core.errors import InvalidArgument


class Packing(NamedTuple):
    """Where the rows of a packed sequence lie among T·N padded ones."""

    batch: int
    batch_sizes: Tensor  # [T] on the data's device
    rows: Tensor  # of the padded tensor, in packed order

    @classmethod
    def of(cls, batch_sizes: Tensor, data: Tensor) -> Packing:
        """From the counts of a `PackedSequence`, which live on the CPU, and its rows."""
        name = "input.batch_sizes"
        if batch_sizes.dim() != 1 or not len(batch_sizes):
            raise InvalidArgument(f"{name} has shape {list(batch_sizes.shape)}, expected at least one step", name)
        batch, total = int(batch_sizes[0]), int(batch_sizes.sum())
        require_lengths(batch_sizes, batch, name)
        if total != len(data):  # rows would move to other steps, or be missing
            raise InvalidArgument(f"{name} add up to {total}, expected {len(data)} like the rows of input.data", name)
        present = batch_sizes[:, None] > torch.arange(batch, device=batch_sizes.device)
        return cls(batch, batch_sizes.to(data.device), present.flatten().nonzero().flatten().to(data.device))

    def padded(self, data: Tensor) -> Tensor:
        """[total length, F] as [T·N, F], zeros where a sequence has ended."""
        steps = self.batch_sizes.shape[0]
        return data.new_zeros(steps * self.batch, data.shape[1]).index_copy(0, self.rows, data)

    def padded_flags(self, flags: Tensor) -> Tensor:
        """[total length] as [T, N], False where a sequence has ended."""
        steps = self.batch_sizes.shape[0]
        return flags.new_zeros(steps * self.batch).index_copy(0, self.rows, flags).view(steps, self.batch)

    def packed(self, output: Tensor) -> Tensor:
        """[T, N, F] as [total length, F]."""
        return output.flatten(0, -2).index_select(0, self.rows)


def require_lengths(batch_sizes: Tensor, batch: int, name: str = "batch_sizes") -> None:
    """Sequences sorted by decreasing length: counts that never rise, between 0 and N."""
    sizes = batch_sizes.tolist()
    for t, size in enumerate(sizes):
        if size < 0 or size > max(batch, 0):
            raise InvalidArgument(f"{name}[{t}] is {size}, expected 0 to {max(batch, 0)}", name)
        if t and size > sizes[t - 1]:
            raise InvalidArgument(
                f"{name}[{t}] is {size} after {sizes[t - 1]}, expected values that never increase", name
            )
