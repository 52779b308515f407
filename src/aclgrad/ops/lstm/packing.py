"""Packed sequences as the operator takes them: every step padded to the whole batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Where the rows of a packed sequence lie among T·N padded ones."""

    batch: int
    batch_sizes: Tensor  # [T] on the data's device
    rows: Tensor  # of the padded tensor, in packed order

    @classmethod
    def of(cls, batch_sizes: Tensor, device: torch.device) -> Packing:
        """From the counts of a `PackedSequence`, which live on the CPU."""
        batch = int(batch_sizes[0])
        present = batch_sizes[:, None] > torch.arange(batch, device=batch_sizes.device)
        return cls(batch, batch_sizes.to(device), present.flatten().nonzero().flatten().to(device))

    def padded(self, data: Tensor) -> Tensor:
        """[total length, F] as [T·N, F], zeros where a sequence has ended."""
        steps = self.batch_sizes.shape[0]
        return data.new_zeros(steps * self.batch, data.shape[1]).index_copy(0, self.rows, data)

    def packed(self, output: Tensor) -> Tensor:
        """[T, N, F] as [total length, F]."""
        return output.flatten(0, -2).index_select(0, self.rows)
