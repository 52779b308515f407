"""Streams and events."""

from __future__ import annotations

from typing import Any

from ....core.errors import InvalidArgument
from .. import devices, findings, ordering
from ..arguments import INT32_MAX, INT32_MIN, UINT32_MAX, integer
from ..boundary import after, code_only, runtime_call
from ..devices import EVENTS, any_stream, stream_of
from ..enums import SUCCESS, EventRecordedStatus, StreamStatus
from ..events import Event

FOREVER = -1
MILLISECONDS = 1e-3


@runtime_call("aclrtCreateStream", after(0))
def create_stream() -> tuple[int, int]:
    """(new stream in the current context, ret)."""
    return devices.create_stream(), SUCCESS


@runtime_call("aclrtCreateStreamWithConfig", after(0))
def create_stream_with_config(priority: Any, flag: Any) -> tuple[int, int]:
    """Like `create_stream`; priority and flag are hints without effect here."""
    integer("priority", priority, 0, UINT32_MAX)
    integer("flag", flag, 0, UINT32_MAX)
    return devices.create_stream(), SUCCESS


@runtime_call("aclrtDestroyStream", code_only)
def destroy_stream(stream: Any) -> int:
    """Finish the stream's work and destroy it."""
    devices.destroy_stream(stream)
    return SUCCESS


@runtime_call("aclrtSynchronizeStream", code_only)
def synchronize_stream(stream: Any) -> int:
    """Wait for all work of the stream; the first failure since the last time is the code."""
    any_stream(stream).synchronize()
    return SUCCESS


@runtime_call("aclrtSynchronizeStreamWithTimeout", code_only)
def synchronize_stream_with_timeout(stream: Any, timeout: Any) -> int:
    """Like `synchronize_stream`, for at most `timeout` milliseconds; -1 waits for ever."""
    milliseconds = integer("timeout", timeout, INT32_MIN, INT32_MAX)
    if milliseconds <= 0 and milliseconds != FOREVER:
        raise InvalidArgument(f"timeout is {milliseconds}, expected -1 or a positive number of milliseconds")
    any_stream(stream).synchronize(None if milliseconds == FOREVER else milliseconds * MILLISECONDS)
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


@runtime_call("aclrtCreateEvent", after(0))
def create_event() -> tuple[int, int]:
    """(new event, ret)."""
    return _new_event(), SUCCESS


@runtime_call("aclrtCreateEventWithFlag", after(0))
def create_event_with_flag(flag: Any) -> tuple[int, int]:
    """Like `create_event`; every event can do what the flags ask for."""
    integer("flag", flag, 0, UINT32_MAX)
    return _new_event(), SUCCESS


@runtime_call("aclrtDestroyEvent", code_only)
def destroy_event(event: Any) -> int:
    """Destroy the event; streams that wait for it still wait for its mark."""
    EVENTS.pop(event, "event")
    return SUCCESS


@runtime_call("aclrtRecordEvent", code_only)
def record_event(event: Any, stream: Any) -> int:
    """Put the event at the end of the stream's work."""
    EVENTS.get(event, "event").record(stream_of(stream))
    return SUCCESS


@runtime_call("aclrtResetEvent", code_only)
def reset_event(event: Any, stream: Any) -> int:
    """Forget that the event was recorded."""
    stream_of(stream)
    EVENTS.get(event, "event").reset()
    return SUCCESS


@runtime_call("aclrtStreamWaitEvent", code_only)
def stream_wait_event(stream: Any, event: Any) -> int:
    """Let later work of the stream wait until the event, as recorded by now, is reached."""
    EVENTS.get(event, "event").hold(stream_of(stream))
    return SUCCESS


@runtime_call("aclrtSynchronizeEvent", code_only)
def synchronize_event(event: Any) -> int:
    """Wait until the event is reached."""
    EVENTS.get(event, "event").synchronize()
    return SUCCESS


@runtime_call("aclrtQueryEventStatus", after(int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_NOT_READY)))
def query_event_status(event: Any) -> tuple[int, int]:
    """(whether the event is recorded and reached, ret)."""
    return int(EventRecordedStatus(EVENTS.get(event, "event").reached())), SUCCESS


@runtime_call("aclrtEventElapsedTime", after(0.0))
def event_elapsed_time(start: Any, end: Any) -> tuple[float, int]:
    """(milliseconds between two reached events, ret)."""
    return EVENTS.get(end, "end").milliseconds_since(EVENTS.get(start, "start")), SUCCESS


def _new_event() -> int:
    devices.current_context()
    return EVENTS.add(Event())
