"""Places in memory that kernels take for pointers. A view of a tensor would do as well, but takes longer to make."""

from __future__ import annotations

import torch

from ..core.memory import Piece
from .launch import INTERPRETING


def placed(piece: Piece, workspace: torch.Tensor, offset: int = 0) -> torch.Tensor | int:
    """A kernel's pointer to a piece of a workspace, `offset` elements into it."""
    if INTERPRETING:
        return piece.view(workspace).view(-1)[offset:]
    return workspace.data_ptr() + piece.offset + offset * piece.dtype.itemsize


def advanced(tensor: torch.Tensor | None, count: int) -> torch.Tensor | int | None:
    """A kernel's pointer to entry `count` of the tensor's first dimension; nothing of nothing."""
    if tensor is None:
        return None
    if INTERPRETING:
        return tensor[count:]
    return tensor.data_ptr() + count * tensor.stride(0) * tensor.element_size()
