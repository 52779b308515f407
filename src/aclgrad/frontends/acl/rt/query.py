"""Questions about the process, its devices and its memory."""

from __future__ import annotations

import os
from typing import Any

from ....core.errors import InvalidArgument
from .. import devices, engines
from ..arguments import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, address, integer, member
from ..blocks import DEVICE, HOST
from ..boundary import AclRuntimeError, after, code_only, runtime_call, take_code
from ..devices import current_context, device_id
from ..enums import SUCCESS, AclError, DeviceStatus, LastErrLevel, MemLocationType, RunMode, SysParamOpt

VERSION = (1, 17, 0)
"""Of the acl interface whose functions are declared."""
_BOTH_HAVE = frozenset({SysParamOpt.ACL_OPT_DETERMINISTIC, SysParamOpt.ACL_OPT_STRONG_CONSISTENCY})
"""What all operators do here, asked or not."""

_options: dict[SysParamOpt, int] = {}


@runtime_call("aclrtGetRunMode", after(int(RunMode.ACL_HOST)))
def get_run_mode() -> tuple[int, int]:
    """(ACL_HOST: the program runs beside the device and copies to and from it, ret)."""
    return int(RunMode.ACL_HOST), SUCCESS


@runtime_call("aclrtGetVersion", after(0, 0, 0))
def get_version() -> tuple[int, int, int, int]:
    """(major, minor, patch version of the interface, ret)."""
    return (*VERSION, SUCCESS)


@runtime_call("aclrtPeekAtLastError", lambda code: code)
def peek_at_last_error(level: Any) -> int:
    """The newest code of a refused runtime call of this thread."""
    member("level", level, LastErrLevel)
    return take_code(keep=True)


@runtime_call("aclrtGetLastError", lambda code: code)
def get_last_error(level: Any) -> int:
    """The newest code of a refused runtime call of this thread, which is then forgotten."""
    member("level", level, LastErrLevel)
    return take_code(keep=False)


@runtime_call("aclrtDeviceCanAccessPeer", after(0))
def device_can_access_peer(device: Any, peer_device: Any) -> tuple[int, int]:
    """(1 if a device reaches the memory of another, ret)."""
    return int(_pair(device, peer_device)), SUCCESS


@runtime_call("aclrtDeviceEnablePeerAccess", code_only)
def device_enable_peer_access(peer_device: Any, flags: Any) -> int:
    """Let the current device reach the memory of another; here it does so anyhow, or cannot."""
    _require_peer(peer_device)
    if integer("flags", flags, 0, UINT32_MAX):
        raise InvalidArgument(f"flags is {flags}, expected 0", "flags")
    return SUCCESS


@runtime_call("aclrtDeviceDisablePeerAccess", code_only)
def device_disable_peer_access(peer_device: Any) -> int:
    """Take back `device_enable_peer_access`."""
    _require_peer(peer_device)
    return SUCCESS


@runtime_call("aclrtDevicePeerAccessStatus", after(0))
def device_peer_access_status(device: Any, peer_device: Any) -> tuple[int, int]:
    """(1 if a device reaches the memory of another, ret)."""
    return int(_pair(device, peer_device)), SUCCESS


@runtime_call("aclrtQueryDeviceStatus", after(int(DeviceStatus.ACL_RT_DEVICE_STATUS_ABNORMAL)))
def query_device_status(device: Any) -> tuple[int, int]:
    """(whether a device is well, ret)."""
    device_id(device)
    return int(DeviceStatus.ACL_RT_DEVICE_STATUS_NORMAL), SUCCESS


@runtime_call("aclrtGetPrimaryCtxState", after(0, 0))
def get_primary_ctx_state(device: Any) -> tuple[int, int, int]:
    """(flags, whether the device's own context exists, ret)."""
    return 0, int(devices.is_set(device_id(device))), SUCCESS


@runtime_call("aclrtPointerGetAttributes", after((0, int(MemLocationType.ACL_MEM_LOCATION_TYPE_UNREGISTERED), 0)))
def pointer_get_attributes(ptr: Any) -> tuple[tuple[int, int, int], int]:
    """((number of the device, aclrtMemLocationType, page size), ret) of the memory at an address."""
    place = address("ptr", ptr)
    if DEVICE.owner(place) is not None:
        return (0, int(MemLocationType.ACL_MEM_LOCATION_TYPE_DEVICE), _page_size()), SUCCESS
    if HOST.owner(place) is not None:
        return (0, int(MemLocationType.ACL_MEM_LOCATION_TYPE_HOST), _page_size()), SUCCESS
    return (0, int(MemLocationType.ACL_MEM_LOCATION_TYPE_UNREGISTERED), 0), SUCCESS


@runtime_call("aclrtMemGetAddressRange", after(0, 0))
def mem_get_address_range(ptr: Any) -> tuple[int, int, int]:
    """(start, size, ret) of the block of device memory that an address is in."""
    place = address("ptr", ptr)
    block = DEVICE.owner(place)
    if block is None:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_INVALID_MEMORY_TYPE, f"ptr {place:#x} is in no live device block, expected one"
        )
    return block.address, block.size, SUCCESS


@runtime_call("aclrtSetOpWaitTimeout", code_only)
def set_op_wait_timeout(timeout: Any) -> int:
    """Seconds that work may wait for an event; here it waits as long as it takes."""
    integer("timeout", timeout, 0, UINT32_MAX)
    return SUCCESS


@runtime_call("aclrtSetOpExecuteTimeOut", code_only)
def set_op_execute_time_out(timeout: Any) -> int:
    """Seconds that an operator may take; here it takes what it needs."""
    integer("timeout", timeout, 0, UINT32_MAX)
    return SUCCESS


@runtime_call("aclrtSetOpExecuteTimeOutWithMs", code_only)
def set_op_execute_time_out_with_ms(timeout: Any) -> int:
    """Milliseconds that an operator may take; here it takes what it needs."""
    integer("timeout", timeout, 0, UINT32_MAX)
    return SUCCESS


@runtime_call("aclrtSetSysParamOpt", code_only)
def set_sys_param_opt(opt: Any, value: Any) -> int:
    """Ask something of all operators of the process: determinism, which they have here in any case."""
    _set_option(opt, value)
    return SUCCESS


@runtime_call("aclrtGetSysParamOpt", after(0))
def get_sys_param_opt(opt: Any) -> tuple[int, int]:
    """(what was asked for, ret)."""
    return _options.get(member("opt", opt, SysParamOpt), 0), SUCCESS


@runtime_call("aclrtCtxSetSysParamOpt", code_only)
def ctx_set_sys_param_opt(opt: Any, value: Any) -> int:
    """Ask something of all operators of the current context."""
    current_context()
    _set_option(opt, value)
    return SUCCESS


@runtime_call("aclrtCtxGetSysParamOpt", after(0))
def ctx_get_sys_param_opt(opt: Any) -> tuple[int, int]:
    """(what was asked for, ret)."""
    current_context()
    return _options.get(member("opt", opt, SysParamOpt), 0), SUCCESS


def _set_option(opt: Any, value: Any) -> None:
    option, wanted = member("opt", opt, SysParamOpt), integer("value", value, INT64_MIN, INT64_MAX)
    if wanted and option not in _BOTH_HAVE:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"opt is {option.name}, which operators here do not have"
        )
    _options[option] = wanted


def _pair(device: Any, peer: Any) -> bool:
    one = integer("deviceId", device, INT32_MIN, INT32_MAX)
    other = integer("peerDeviceId", peer, INT32_MIN, INT32_MAX)
    return device_id(one) != device_id(other) and engines.current.can_reach(one, other)


def _require_peer(peer: Any) -> None:
    mine, other = current_context().device, device_id(peer)
    if mine == other or not engines.current.can_reach(mine, other):
        raise InvalidArgument(f"peerDeviceId is {other}, expected another device that device {mine} reaches")


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
