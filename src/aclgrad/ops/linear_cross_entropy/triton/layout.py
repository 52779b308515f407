"""How matrices lie in memory, and whether products can read them there."""

from __future__ import annotations

import torch

from aclgrad.core.meta import Meta
from aclgrad.gpu.launch import ALIGNED

LEADING = 64
"""Elements: where rows are laid out here, they begin at whole lines of the cache."""


def in_order(meta: Meta) -> bool:
    """Whether rows are gapless and lie one after the other, at any addresses."""
    (_, columns), (row, column) = meta.shape, meta.strides
    return column == 1 and row >= columns


def row_major(meta: Meta) -> bool:
    """Whether rows are gapless and lie one after the other, all at addresses as aligned as the first."""
    return in_order(meta) and meta.strides[0] * meta.itemsize % ALIGNED == 0


def aligned(*tensors: torch.Tensor) -> bool:
    """Whether the bulk copy engine takes these addresses."""
    return all(tensor.data_ptr() % ALIGNED == 0 for tensor in tensors)


def holds_float32(tensor: torch.Tensor) -> bool:
    """Whether its memory can be seen as aligned float32 numbers."""
    return aligned(tensor) and tensor.storage_offset() * tensor.element_size() % ALIGNED == 0


def ceil_div(a: int, b: int) -> int:
    """A / b, rounded up."""
    return -(-a // b)


def round_up(a: int, step: int) -> int:
    """The first multiple of `step` that is not below a."""
    return ceil_div(a, step) * step
