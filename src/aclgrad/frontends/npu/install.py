"""Put the device and the modules there, and take them away."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import backend_registration

from ...core.errors import InvalidArgument, Unsupported
from ..acl import engines
from . import addresses, autocast, distributed, fallback, memory, modules, patches
from .memory import DEVICE_TYPE

_PARTS = (
    patches.apply, modules.put, fallback.register, autocast.register, distributed.register, addresses.register,
)  # fmt: skip
"""Each brings something and returns what takes it away."""

_UNNAMED = "privateuseone"
_lock = threading.Lock()
_installed: ExitStack | None = None
_hooks: Any = None
"""What torch asks about the device; it has them for the rest of the process, and no second ones."""


def install(device: str | None = None) -> None:
    """Make `import torch_npu`, `import acl`, `torch.npu` and `device="npu"` work in this process; again does nothing.

    `device` says where the memory is: "cpu" or "cuda", by default what ACLGRAD_DEVICE says, else "cpu". Refused where
    the real torch_npu is installed, or another library has a device of this kind, or after the first `backward()` of
    the process: torch begins its threads for gradients once, for the devices that there are.

    >>> import aclgrad.npu
    >>> aclgrad.npu.install()
    >>> import torch, torch_npu
    >>> x = torch.ones(2, 3).npu()
    >>> x.device.type, torch_npu.npu_format_cast(x, 29).sum().item()
    ('npu', 6.0)
    """
    global _installed
    behind = _behind(device)
    with _lock:
        if _installed is not None:
            if behind != memory.behind:
                raise InvalidArgument(f"device is {behind}, but is installed with {memory.behind}", "device")
            return
        _require_free()
        memory.behind = behind
        with ExitStack() as stack:
            _name_the_device()
            for bring in _PARTS:
                stack.callback(bring())
            _require_gradients()
            _installed = stack.pop_all()


def uninstall() -> None:
    """Take away what `install` has brought; nothing where it was not called.

    Tensors of the device that are left cannot be computed with. Torch keeps three things for the rest of the process:
    the name "npu" for devices, `torch.npu.is_available()`, which is False, and a thread for gradients, so that a forked
    child cannot call `backward()`, as after using a GPU.
    """
    global _installed
    with _lock:
        if _installed is not None:
            _installed.close()
            _installed = None


def is_installed() -> bool:
    """Whether the device is there."""
    return _installed is not None


def _behind(device: str | None) -> torch.device:
    name = device or os.environ.get(engines.VARIABLE) or "cpu"
    if name not in ("cpu", "cuda"):
        raise InvalidArgument(f"device is {name!r}, expected 'cpu' or 'cuda'", "device")
    if name == "cuda" and not torch.cuda.is_available():
        raise Unsupported("device is 'cuda', but torch finds no CUDA device, expected one")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


def _require_free() -> None:
    if not hasattr(torch._C, "_acc"):
        raise Unsupported(f"torch {torch.__version__} takes no device from Python, expected 2.10 or newer")
    name = torch._C._get_privateuse1_backend_name()
    if name != _UNNAMED and _hooks is None:
        raise Unsupported(f"torch has the device {name!r} of another library, expected none: it can have one")
    if "torch_npu" in sys.modules or importlib.util.find_spec("torch_npu") is not None:
        raise Unsupported("torch_npu is installed, expected a machine without it: it has its own device")


def _require_gradients() -> None:
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros((), device=DEVICE_TYPE, requires_grad=True)
        try:
            (x * x).backward()
        except RuntimeError:
            raise Unsupported(
                "backward() has been called in this process, expected install() before the first time: "
                "torch begins its threads for gradients once, for the devices that there are"
            ) from None


def _name_the_device() -> None:
    """Once in a process: torch can neither forget the name nor take a second one, nor other hooks."""
    global _hooks
    if _hooks is not None:
        return
    guard = _Guard()
    backend_registration.rename_privateuse1_backend(DEVICE_TYPE)
    hooks = _Hooks()
    torch._C._acc.register_python_privateuseone_hook(hooks)
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    _hooks = hooks, guard


if hasattr(torch._C, "_acc"):  # torch before 2.10 is refused when it is asked for

    class _Hooks(torch._C._acc.PrivateUse1Hooks):
        """What torch asks about the device."""

        def is_available(self) -> bool:
            return is_installed()

        def is_built(self) -> bool:
            return is_installed()

        def has_primary_context(self, device_index: int) -> bool:
            return is_installed() and device_index in (0, -1)

    class _Guard(torch._C._acc.DeviceGuard):
        """Which kind of device it is; there is one of it, so nothing needs to be switched."""

        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.PrivateUse1
