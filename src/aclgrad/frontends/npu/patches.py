"""What torch's classes and modules have while the device is there, beyond what torch lets a device register."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import backend_registration

from . import memory, random, torch_module
from .memory import DEVICE_TYPE

_OWNERS: tuple[Any, ...] = (
    torch, torch.accelerator, torch.Tensor, torch.nn.Module, PackedSequence, torch.storage._StorageBase,
    torch.TypedStorage, torch.UntypedStorage,
)  # fmt: skip
_OF_ACCELERATORS = (
    "current_stream", "empty_cache", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
    "memory_reserved", "memory_stats", "reset_peak_memory_stats", "set_stream", "synchronize",
)  # fmt: skip
"""Functions of `torch.accelerator` that ask a device in C++, which torch does not let Python answer."""


def apply() -> Callable[[], None]:
    """Give torch's classes the device's methods; what is returned gives them back as they were."""
    before = [(owner, dict(vars(owner))) for owner in _OWNERS]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _replace()
    changed = [(owner, old, name) for owner, old in before for name in _changed(owner, old)]

    def undo() -> None:
        for owner, old, name in changed:
            if name in old:
                setattr(owner, name, old[name])
            else:
                delattr(owner, name)

    return undo


def _changed(owner: Any, before: dict[str, Any]) -> list[str]:
    """Names that are new or mean something else, but modules that were imported on the way."""
    return [
        name
        for name, value in vars(owner).items()
        if before.get(name, before) is not value and not isinstance(value, ModuleType)
    ]


def _replace() -> None:
    for name in _OF_ACCELERATORS:
        if hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, getattr(torch_module, name))
    for owner, name, value in (
        (torch.Tensor, "pin_memory", _pin_memory),
        (torch.Tensor, "is_pinned", _is_pinned),
        (torch.UntypedStorage, "__new__", _new_storage),
        (torch, "Generator", random.Generator),
    ):
        setattr(owner, name, value)


_original_new: Any = torch.UntypedStorage.__new__
_original_pin = torch.Tensor.pin_memory
_original_is_pinned = torch.Tensor.is_pinned


def _new_storage(cls: Any, *args: Any, device: Any = None, **options: Any) -> Any:
    """Torch has no allocator for the device, and would look for it where none is."""
    if device is None or torch.device(device).type != DEVICE_TYPE:
        return _original_new(cls, *args, **options) if device is None else _original_new(cls, *args, device=device)
    return memory.adopted(_original_new(cls, *args, device=memory.behind))


def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy that `is_pinned`: the device reaches all memory, so no memory is special."""
    if memory.behind.type != "cpu" or (device is not None and torch.device(device).type != DEVICE_TYPE):
        return _original_pin(self, memory.behind if device is None else device)
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin {self.type()!r}: only dense tensors of the processor can be pinned")
    if _is_pinned(self):
        return self
    copy = self.clone()
    copy.untyped_storage()._aclgrad_is_pinned = True  # type: ignore[attr-defined]
    return copy


def _is_pinned(self: Tensor, device: Any = None) -> bool:
    if memory.behind.type != "cpu" or (device is not None and torch.device(device).type != DEVICE_TYPE):
        return _original_is_pinned(self, memory.behind if device is None else device)
    dense = self.device.type == "cpu" and self.layout == torch.strided
    return dense and getattr(self.untyped_storage(), "_aclgrad_is_pinned", False)
