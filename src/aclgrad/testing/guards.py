"""Tensors inside larger buffers: whatever a kernel writes or reads beside them becomes visible."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.meta import contiguous_strides
from .layouts import SENTINEL, sentinel
from .poison import NAN, fill

MARGIN = 64  # elements before and behind
GAP = 3  # of so many elements the first is used


class Guarded:
    """A tensor of poison inside a buffer of one byte: its elements side by side, or with gaps between them."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, *, gaps: bool = False, byte: int = SENTINEL) -> None:
        plain, step = contiguous_strides(shape), GAP if gaps else 1
        count = torch.Size(shape).numel() * step + 2 * MARGIN
        self.byte = byte
        self.buffer = sentinel(count, dtype, byte)
        self.tensor = self.buffer.as_strided(shape, [step * stride for stride in plain], MARGIN)
        fill(self.tensor)

    @staticmethod
    def around(values: Tensor) -> Guarded:
        """A copy of a tensor's values amid NaN."""
        made = Guarded(tuple(values.shape), values.dtype, byte=NAN)
        made.tensor.copy_(values)
        return made

    @property
    def intact(self) -> bool:
        """Whether every byte beside the elements is what it was."""
        own = torch.zeros_like(self.buffer, dtype=torch.bool)
        own.as_strided(self.tensor.shape, self.tensor.stride(), MARGIN).fill_(True)
        beside = self.buffer.view(torch.uint8).view(len(self.buffer), -1)[~own]  # of a bool an index would make 0 or 1
        return bool((beside == self.byte).all())
