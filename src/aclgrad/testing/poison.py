"""Poisoned memory: whatever a kernel forgets to write, or reads before writing, becomes visible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..core import memory
from ..core.meta import Meta

NAN = 0xFF
"""A byte that is NaN in every floating type."""


@contextmanager
def poisoned_memory(byte: int = NAN) -> Iterator[None]:
    """Fill every output and workspace the package allocates with a byte."""
    empty, workspace = memory.empty, memory.workspace

    def poisoned_empty(meta: Meta) -> torch.Tensor:
        return fill(empty(meta), byte)

    def poisoned_workspace(size: int, device: torch.device) -> torch.Tensor | None:
        block = workspace(size, device)
        if block is not None:
            block[:size].fill_(byte)
        return block

    memory.empty, memory.workspace = poisoned_empty, poisoned_workspace
    try:
        yield
    finally:
        memory.empty, memory.workspace = empty, workspace


def fill(tensor: torch.Tensor, byte: int = NAN) -> torch.Tensor:
    """Set every byte of a tensor's elements."""
    flat = torch.full((tensor.numel() * tensor.element_size(),), byte, dtype=torch.uint8)
    pattern = flat.view(tensor.dtype).view(tensor.shape) if tensor.numel() else flat[:0].view(tensor.dtype)
    return tensor.copy_(pattern.view(tensor.shape).to(tensor.device))
