"""Events."""

from __future__ import annotations

from typing import Any

from .. import devices
from ..arguments import UINT32_MAX, integer
from ..boundary import after, code_only, runtime_call
from ..devices import EVENTS, stream_of
from ..enums import SUCCESS, EventRecordedStatus, EventStatus, EventWaitStatus
from ..events import Event
from .stream import seconds


@runtime_call("aclrtCreateEvent", after(0))
def create_event() -> tuple[int, int]:
    """(new event, ret)."""
    return _new_event(), SUCCESS


@runtime_call("aclrtCreateEventWithFlag", after(0))
def create_event_with_flag(flag: Any) -> tuple[int, int]:
    """Like `create_event`; every event can do what the flags ask for."""
    integer("flag", flag, 0, UINT32_MAX)
    return _new_event(), SUCCESS


@runtime_call("aclrtCreateEventExWithFlag", after(0))
def create_event_ex_with_flag(flag: Any) -> tuple[int, int]:
    """Like `create_event_with_flag`; there is no limit to the number of any."""
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


@runtime_call("aclrtStreamWaitEventWithTimeout", code_only)
def stream_wait_event_with_timeout(stream: Any, event: Any, timeout: Any) -> int:
    """Like `stream_wait_event`; work here waits as long as it takes, whatever the timeout."""
    seconds(timeout, least=0)
    EVENTS.get(event, "event").hold(stream_of(stream))
    return SUCCESS


@runtime_call("aclrtSynchronizeEventWithTimeout", code_only)
def synchronize_event_with_timeout(event: Any, timeout: Any) -> int:
    """Like `synchronize_event`, for at most `timeout` milliseconds; 0 only looks, -1 waits for ever."""
    EVENTS.get(event, "event").synchronize(seconds(timeout))
    return SUCCESS


@runtime_call("aclrtQueryEvent", after(int(EventStatus.ACL_EVENT_STATUS_NOT_READY)))
def query_event(event: Any) -> tuple[int, int]:
    """(whether the event is reached, as aclrtEventStatus, ret)."""
    reached = EVENTS.get(event, "event").reached()
    status = EventStatus.ACL_EVENT_STATUS_COMPLETE if reached else EventStatus.ACL_EVENT_STATUS_NOT_READY
    return int(status), SUCCESS


@runtime_call("aclrtQueryEventWaitStatus", after(int(EventWaitStatus.ACL_EVENT_WAIT_STATUS_NOT_READY)))
def query_event_wait_status(event: Any) -> tuple[int, int]:
    """(whether all that waits for the event has been let go, ret)."""
    settled = EVENTS.get(event, "event").settled()
    status = (
        EventWaitStatus.ACL_EVENT_WAIT_STATUS_COMPLETE if settled else EventWaitStatus.ACL_EVENT_WAIT_STATUS_NOT_READY
    )
    return int(status), SUCCESS


@runtime_call("aclrtQueryEventStatus", after(int(EventRecordedStatus.ACL_EVENT_RECORDED_STATUS_NOT_READY)))
def query_event_status(event: Any) -> tuple[int, int]:
    """(whether the event is recorded and reached, ret)."""
    return int(EventRecordedStatus(EVENTS.get(event, "event").reached())), SUCCESS


@runtime_call("aclrtEventElapsedTime", after(0.0))
def event_elapsed_time(start: Any, end: Any) -> tuple[float, int]:
    """(milliseconds between two reached events, ret)."""
    return EVENTS.get(end, "endEvent").milliseconds_since(EVENTS.get(start, "startEvent")), SUCCESS


@runtime_call("aclrtEventGetTimestamp", after(0))
def event_get_timestamp(event: Any) -> tuple[int, int]:
    """(microseconds at which the event was reached, of a clock that only goes forward, ret)."""
    return EVENTS.get(event, "event").microseconds(), SUCCESS


def _new_event() -> int:
    devices.current_context()
    return EVENTS.add(Event())
