"""Numbers that a kernel reads from memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def table(numbers: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
    """The numbers as int64 in the host's memory, whatever torch's default device is."""
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")
