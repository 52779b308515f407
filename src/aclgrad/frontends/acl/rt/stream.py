"""Streams."""

from __future__ import annotations

from typing import Any

from ....core.errors import InvalidArgument
from .. import devices, findings, ordering
from ..arguments import INT32_MAX, INT32_MIN, UINT32_MAX, UINT64_MAX, integer
from ..boundary import AclRuntimeError, after, code_only, runtime_call
from ..devices import any_stream, current_context
from ..enums import SUCCESS, AclError, FailureMode, StreamStatus

FOREVER = -1
MILLISECONDS = 1e-3
LEAST_PRIORITY, GREATEST_PRIORITY = 7, 0


def seconds(timeout: Any, *, least: int = FOREVER) -> float | None:
    """A timeout in milliseconds as seconds, 0 to look and not wait; None for -1, which waits for ever."""
    milliseconds = integer("timeout", timeout, INT32_MIN, INT32_MAX)
    if milliseconds < least:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID,
            f"timeout is {milliseconds}, expected {'-1, 0' if least == FOREVER else '0'} or a number of milliseconds",
        )
    return None if milliseconds == FOREVER else milliseconds * MILLISECONDS


@runtime_call("aclrtCreateStream", after(0))
def create_stream() -> tuple[int, int]:
    """(new stream in the current context, ret)."""
    return devices.create_stream(), SUCCESS


@runtime_call("aclrtCreateStreamWithConfig", after(0))
def create_stream_with_config(priority: Any, flag: Any) -> tuple[int, int]:
    """Like `create_stream`; priority and flag are hints, which are remembered and have no effect here."""
    chosen = integer("priority", priority, 0, UINT32_MAX), integer("flag", flag, 0, UINT32_MAX)
    handle = devices.create_stream()
    stream = devices.STREAMS.get(handle, "stream")
    stream.priority, stream.flags = chosen
    return handle, SUCCESS


@runtime_call("aclrtDestroyStream", code_only)
def destroy_stream(stream: Any) -> int:
    """Finish the stream's work and destroy it."""
    devices.destroy_stream(stream)
    return SUCCESS


@runtime_call("aclrtDestroyStreamForce", code_only)
def destroy_stream_force(stream: Any) -> int:
    """Destroy the stream with what it has not begun."""
    devices.destroy_stream(stream, force=True)
    return SUCCESS


@runtime_call("aclrtStreamGetPriority", after(0))
def stream_get_priority(stream: Any) -> tuple[int, int]:
    """(the priority it was created with, ret)."""
    return any_stream(stream).priority, SUCCESS


@runtime_call("aclrtStreamGetFlags", after(0))
def stream_get_flags(stream: Any) -> tuple[int, int]:
    """(the flags it was created with, ret)."""
    return any_stream(stream).flags, SUCCESS


@runtime_call("aclrtStreamGetId", after(0))
def stream_get_id(stream: Any) -> tuple[int, int]:
    """(a number that no other stream has, ret)."""
    return any_stream(stream).number, SUCCESS


@runtime_call("aclrtSetStreamFailureMode", code_only)
def set_stream_failure_mode(stream: Any, mode: Any) -> int:
    """Whether the stream goes on after a task has failed (0, as it does at first) or drops what follows (1)."""
    chosen = integer("mode", mode, 0, UINT64_MAX)
    if chosen not in tuple(FailureMode):
        raise InvalidArgument(f"mode is {chosen}, expected ACL_CONTINUE_ON_FAILURE or ACL_STOP_ON_FAILURE", "mode")
    any_stream(stream).stops_on_failure = chosen == FailureMode.ACL_STOP_ON_FAILURE
    return SUCCESS


@runtime_call("aclrtDeviceGetStreamPriorityRange", after(0, 0))
def device_get_stream_priority_range() -> tuple[int, int, int]:
    """(the least, the greatest priority, ret)."""
    current_context()
    return LEAST_PRIORITY, GREATEST_PRIORITY, SUCCESS


@runtime_call("aclrtCtxGetCurrentDefaultStream", after(0))
def ctx_get_current_default_stream() -> tuple[int, int]:
    """(a handle of the stream that null means in the current context, ret)."""
    return devices.default_handle(), SUCCESS


@runtime_call("aclrtSynchronizeStream", code_only)
def synchronize_stream(stream: Any) -> int:
    """Wait for all work of the stream; the first failure since the last time is the code."""
    any_stream(stream).synchronize()
    return SUCCESS


@runtime_call("aclrtSynchronizeStreamWithTimeout", code_only)
def synchronize_stream_with_timeout(stream: Any, timeout: Any) -> int:
    """Like `synchronize_stream`, for at most `timeout` milliseconds; 0 only looks, -1 waits for ever."""
    limit = seconds(timeout)
    any_stream(stream).synchronize(limit)
    return SUCCESS


@runtime_call("aclrtStreamQuery", after(int(StreamStatus.ACL_STREAM_STATUS_NOT_READY)))
def stream_query(stream: Any) -> tuple[int, int]:
    """(whether all work of the stream is done, ret)."""
    queue = any_stream(stream)
    idle = queue.idle
    if idle and findings.strict:
        ordering.synchronised(queue)
    status = StreamStatus.ACL_STREAM_STATUS_COMPLETE if idle else StreamStatus.ACL_STREAM_STATUS_NOT_READY
    return int(status), SUCCESS
