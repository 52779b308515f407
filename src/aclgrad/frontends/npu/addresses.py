"""`tensor.data_ptr()` is an address of device memory, for acl's functions as for aclnn's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..acl.blocks import DEVICE, Block
from . import memory


def register() -> Callable[[], None]:
    """Let the runtime find the memory of the device's tensors; what is returned ends it."""
    DEVICE.guests = _block_at

    def undo() -> None:
        DEVICE.guests = None

    return undo


def _block_at(address: int) -> Block | None:
    """The memory that contains an address. It lives as long as anybody has it, so there is none that was freed."""
    for storage in memory.usage.storages():
        start, nbytes = storage.data_ptr(), storage.nbytes()
        if start <= address < start + nbytes:
            elements = torch.empty(0, dtype=torch.uint8, device=memory.behind).set_(storage)
            block = Block(nbytes, start, elements)
            block.written.add(0, nbytes)  # by torch, which nobody watches
            return block
    return None
