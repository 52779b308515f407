"""Tensors of the device "npu". Each is torch's own, over memory of the processor or of a GPU.

A storage of the device keeps the storage behind it, which owns the memory. So views, saved tensors and autograd work
as on any device, and `alias` gives the same elements as a tensor that kernels take.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...core.errors import Unsupported

DEVICE_TYPE = "npu"
_BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_point_at = torch.ops.aten.set_.source_Storage_storage_offset

behind = torch.device("cpu")
"""Where the memory is. `install` decides."""


class Usage:
    """Bytes that tensors of the device hold, now and at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.current = 0
        self.peak = 0

    def hold(self, storage: torch.UntypedStorage) -> None:
        """Count a storage while it lives, with the size it has now."""
        key, nbytes = id(storage), storage.nbytes()
        with self._lock:
            self.current += nbytes - (self._held[key][1] if key in self._held else 0)
            self._held[key] = (weakref.ref(storage, lambda _: self._release(key)), nbytes)
            self.peak = max(self.peak, self.current)

    def _release(self, key: int) -> None:
        with self._lock:
            self.current -= self._held.pop(key)[1]

    def storages(self) -> Iterator[torch.UntypedStorage]:
        """Those that live."""
        for reference, _ in list(self._held.values()):
            storage = reference()
            if storage is not None:
                yield storage


usage = Usage()


def is_on_device(value: Any) -> bool:
    """True for a tensor of the device."""
    return isinstance(value, Tensor) and value.device.type == DEVICE_TYPE


def alias(tensor: Tensor) -> Tensor:
    """The elements of a tensor of the device, as a tensor of the device behind."""
    memory = memory_of(tensor.untyped_storage())
    empty = torch.empty(0, dtype=tensor.dtype, device=behind)
    below = empty.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_conj():
        below = torch._conj(below)
    return torch._neg_view(below) if tensor.is_neg() else below


def memory_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The storage behind one of the device."""
    memory: torch.UntypedStorage | None = getattr(storage, "_aclgrad_memory", None)
    if memory is not None:
        return memory
    if not storage.nbytes():
        return torch.empty(0, dtype=torch.uint8, device=behind).untyped_storage()
    for memory in usage.storages():  # torch has made another storage over the same memory, as it does to write files
        if memory.data_ptr() == storage.data_ptr() and memory.nbytes() >= storage.nbytes():
            return memory
    raise Unsupported("a tensor of the device npu was made by another library, expected one of aclgrad.npu")


def adopt(tensor: Tensor, of: Tensor | None = None) -> Tensor:
    """The elements of a tensor of the device behind, as one of the device; `of` if that has them already."""
    if tensor.layout != torch.strided:
        raise Unsupported(f"a result is {tensor.layout}, expected torch.strided: the device npu has dense tensors only")
    if of is None:
        made = point(_empty(tensor.dtype), tensor, adopted(tensor.untyped_storage()))
    elif torch.is_inference_mode_enabled() and not of.is_inference():  # then neither are its views
        with torch.inference_mode(False):
            made = point(_empty(tensor.dtype), tensor, of.untyped_storage())
    else:
        made = point(_empty(tensor.dtype), tensor, of.untyped_storage())
    if tensor.is_conj():
        made = torch._conj(made)
    return torch._neg_view(made) if tensor.is_neg() else made


def _empty(dtype: torch.dtype) -> Tensor:
    return torch._C._acc.create_empty_tensor((0,), dtype)


def adopted(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device over memory, which it keeps."""
    device = torch.device(DEVICE_TYPE, 0)
    storage: Any = torch._C._construct_storage_from_data_pointer(memory.data_ptr(), device, memory.nbytes())
    storage._aclgrad_memory = memory
    usage.hold(memory)
    return storage  # type: ignore[no-any-return]


def point(tensor: Tensor, source: Tensor, storage: torch.UntypedStorage) -> Tensor:
    """Let a tensor of the device have the sizes and strides of `source`, in a storage of the device."""
    _point_at.redispatch(_BELOW, tensor, storage, source.storage_offset(), source.size(), source.stride())
    return tensor


def follow(tensor: Tensor, source: Tensor) -> None:
    """Let a tensor of the device be what became of its alias, which may have been resized."""
    memory, storage = source.untyped_storage(), tensor.untyped_storage()
    is_same = memory.data_ptr() == storage.data_ptr() and memory.nbytes() == storage.nbytes()
    if is_same and _geometry(source) == _geometry(tensor):
        return
    point(tensor, source, storage if is_same else adopted(memory))


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.size(), tensor.stride(), tensor.storage_offset()
