"""Devices and contexts."""

from __future__ import annotations

from typing import Any

from .. import devices
from ..boundary import AclRuntimeError, after, code_only, runtime_call
from ..devices import CONTEXTS, Context, device_id
from ..enums import SUCCESS, AclError
from .stream import seconds


@runtime_call("aclrtSetDevice", code_only)
def set_device(device: Any) -> int:
    """Make a device current in the calling thread."""
    devices.set_device(device_id(device))
    return SUCCESS


@runtime_call("aclrtResetDevice", code_only)
def reset_device(device: Any) -> int:
    """Take back one `set_device`; the last one finishes all work and destroys the device's streams."""
    devices.reset_device(device_id(device))
    return SUCCESS


@runtime_call("aclrtResetDeviceForce", code_only)
def reset_device_force(device: Any) -> int:
    """Take back every `set_device` at once."""
    devices.reset_device(device_id(device), force=True)
    return SUCCESS


@runtime_call("aclrtGetDevice", after(0))
def get_device() -> tuple[int, int]:
    """(device of the calling thread, ret)."""
    return devices.current_context().device, SUCCESS


@runtime_call("aclrtGetDeviceCount", after(0))
def get_device_count() -> tuple[int, int]:
    """(number of devices, ret)."""
    return devices.device_count(), SUCCESS


@runtime_call("aclrtSynchronizeDevice", code_only)
def synchronize_device() -> int:
    """Wait for all streams of the current device; the first failure among them is the code."""
    devices.synchronize_streams(devices.current_context().device)
    return SUCCESS


@runtime_call("aclrtSynchronizeDeviceWithTimeout", code_only)
def synchronize_device_with_timeout(timeout: Any) -> int:
    """Like `synchronize_device`, at most `timeout` milliseconds for each stream; 0 only looks, -1 waits for ever."""
    limit = seconds(timeout)
    devices.synchronize_streams(devices.current_context().device, limit)
    return SUCCESS


@runtime_call("aclrtCreateContext", after(0))
def create_context(device: Any) -> tuple[int, int]:
    """A context besides the primary one, current in the calling thread: (context, ret)."""
    context = Context(device_id(device), primary=False)
    devices.make_current(context)
    return context.handle, SUCCESS


@runtime_call("aclrtDestroyContext", code_only)
def destroy_context(context: Any) -> int:
    """Finish the context's work and destroy it with its streams."""
    found = CONTEXTS.get(context, "context")
    if found.primary:
        raise AclRuntimeError(
            AclError.ACL_ERROR_INVALID_PARAM,
            "context is the primary one of its device, expected one of aclrtCreateContext (see aclrtResetDevice)",
        )
    CONTEXTS.pop(context, "context").release()
    return SUCCESS


@runtime_call("aclrtSetCurrentContext", code_only)
def set_context(context: Any) -> int:
    """Make a context current in the calling thread."""
    devices.make_current(CONTEXTS.get(context, "context"))
    return SUCCESS


@runtime_call("aclrtGetCurrentContext", after(0))
def get_context() -> tuple[int, int]:
    """(context of the calling thread, ret)."""
    return devices.current_context().handle, SUCCESS
