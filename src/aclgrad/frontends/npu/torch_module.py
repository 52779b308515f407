"""What `torch.npu` has: one device, which is always there, over the memory of the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ...core.soc import current_soc
from ..acl import boundary, engines, rt
from . import memory
from .random import *  # noqa: F403  torch.npu has them
from .random import __all__ as _of_random
from .streams import *  # noqa: F403
from .streams import __all__ as _of_streams
from .streams import _done, ready, require_index

__all__ = [
    *_of_random,
    *_of_streams,
    "can_device_access_peer",
    "config",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_compile_mode",
    "set_device",
    "set_option",
    "synchronize",
]

config = SimpleNamespace(allow_internal_format=True)
"""Options of torch_npu, which are kept and have no effect: memory is always row-major here."""

_compile_mode: dict[str, Any] = {}
_options: dict[str, Any] = {}


def is_available() -> bool:
    """True: the machine plays the device."""
    return True


def is_initialized() -> bool:
    """Whether the runtime runs."""
    return boundary.initialised


def init() -> None:
    """Let the runtime run."""
    ready()


def device_count() -> int:
    """1."""
    return 1


def current_device() -> int:
    """0."""
    return 0


def set_device(device: Any) -> None:
    """Choose the device there is."""
    require_index(torch.device(device) if isinstance(device, str) else device)
    ready()


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """A context in which a device is chosen."""
    require_index(torch.device(device) if isinstance(device, str) else device)
    yield


@contextlib.contextmanager
def device_of(obj: Any) -> Iterator[None]:  # noqa: ARG001  there is one
    """A context in which a tensor's device is chosen."""
    yield


def synchronize(device: Any = None) -> None:
    """Wait for all work of all streams."""
    require_index(torch.device(device) if isinstance(device, str) else device)
    if boundary.initialised:
        ready()
        _done(rt.synchronize_device())
    if memory.behind.type == "cuda":
        torch.cuda.synchronize(memory.behind)


def can_device_access_peer(device_id: Any, peer_device_id: Any) -> bool:
    """Whether a device reaches the memory of another: there is no other."""
    return bool(require_index(device_id) != require_index(peer_device_id))


def get_device_name(device: Any = None) -> str:
    """The name of the chip that is imitated."""
    require_index(device)
    return current_soc()


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """Its name and the bytes of its memory."""
    return SimpleNamespace(name=get_device_name(device), total_memory=mem_get_info(device)[1], index=0)


def get_device_capability(device: Any = None) -> None:
    """None, as on Ascend: chips have no such number."""
    require_index(device)


def is_bf16_supported() -> bool:
    """True."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may compute in."""
    return [torch.float16, torch.bfloat16, torch.float32]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the memory behind the device."""
    require_index(device)
    if memory.behind.type == "cuda":
        return torch.cuda.mem_get_info(memory.behind)
    total = engines.current.capacity(0)
    return min(_available_bytes(), total), total


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors of the device hold."""
    require_index(device)
    return memory.usage.current


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that they have held since `reset_peak_memory_stats`."""
    require_index(device)
    return memory.usage.peak


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` begin anew."""
    require_index(device)
    memory.usage.peak = memory.usage.current


def memory_stats(device: Any = None) -> dict[str, int]:
    """The numbers there are, by torch's names."""
    require_index(device)
    return {
        "allocated_bytes.all.current": memory.usage.current,
        "allocated_bytes.all.peak": memory.usage.peak,
        "reserved_bytes.all.current": memory.usage.current,
        "reserved_bytes.all.peak": memory.usage.peak,
    }


def empty_cache() -> None:
    """Give back what is kept for later: nothing is."""


def set_compile_mode(jit_compile: bool = False) -> None:
    """Say whether operators are to be compiled for each shape; it has no effect."""
    _compile_mode["jit_compile"] = jit_compile


def set_option(option: dict[str, Any]) -> None:
    """Set options of the device's compiler; they have no effect."""
    _options.update(option)


def _is_in_bad_fork() -> bool:
    return False


def _available_bytes() -> int:
    """Of the machine's memory, what new programs can have."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return engines.current.capacity(0) - memory.usage.current


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated
reset_max_memory_allocated = reset_peak_memory_stats
