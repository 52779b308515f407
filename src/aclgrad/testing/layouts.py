"""The same values in other places: memory layouts a kernel must take without a change in its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SENTINEL = 0x5A


def strided(tensor: Tensor) -> Tensor:
    """Every second element of a larger buffer, behind an offset; the gaps hold a sentinel."""
    buffer = sentinel(2 * tensor.numel() + 3, tensor.dtype)
    view = buffer.as_strided(tensor.shape, [2 * s for s in _row_major(tensor)], 3)
    return view.copy_(tensor)


def transposed(tensor: Tensor) -> Tensor:
    """Dimensions in reverse order of memory."""
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def channels_last(tensor: Tensor) -> Tensor:
    """Dimension 1 innermost, for ranks that have one to move."""
    if tensor.dim() < 3:
        return tensor
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def begun_late(tensor: Tensor, by: int = 1) -> Tensor:
    """Side by side in memory that begins `by` elements late, so that no access may be wide."""
    room = torch.empty(tensor.numel() + by, dtype=tensor.dtype, device=tensor.device)
    return room[by:].view(tensor.shape).copy_(tensor)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "strided": strided,
    "transposed": transposed,
    "channels_last": channels_last,
}


def apply(layout: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The layout applied to a tensor or to every tensor of a list; other values as they are."""
    if isinstance(value, Tensor):
        return layout(value)
    if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
        return [apply(layout, item) for item in value]
    return value


def sentinel(count: int, dtype: torch.dtype, byte: int = SENTINEL) -> Tensor:
    """A flat buffer whose bytes are all the same."""
    return torch.full((count * dtype.itemsize,), byte, dtype=torch.uint8).view(dtype)


def _row_major(tensor: Tensor) -> tuple[int, ...]:
    return torch.empty(tensor.shape, device="meta").stride()
