"""Devices, contexts and whose they are: the current context is a matter of each thread.

`set_device` makes the device's primary context current and counts; the matching `reset_device` calls release it.
A context owns its streams: when it is released they finish their work and are destroyed. A stream takes work from any
thread where its context is current; to wait for it or to ask about it, any context will do.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from ...core.errors import InvalidArgument
from . import engines, findings, ordering, reports
from .arguments import INT32_MAX, INT32_MIN, integer
from .blocks import DEVICE
from .boundary import AclRuntimeError, Mistake, tolerate
from .enums import AclError
from .events import Event
from .findings import Kind
from .handles import Table
from .streams import Stream

_bad_handle = partial(AclRuntimeError, AclError.ACL_ERROR_RT_INVALID_HANDLE)


class Context:
    """A device and the streams made on it."""

    __slots__ = ("_default", "alive", "default_handle", "device", "handle", "primary", "streams")

    def __init__(self, device: int, *, primary: bool) -> None:
        self.device = device
        self.primary = primary
        self.alive = True
        self.streams: dict[int, Stream] = {}
        self._default: Stream | None = None
        self.default_handle = 0
        self.handle = CONTEXTS.add(self)

    @property
    def default_stream(self) -> Stream:
        """The stream that the null handle means."""
        if self._default is None:
            with _lock:
                if self._default is None:
                    stream = engines.current.stream(self.device, is_default=True)
                    stream.is_default = True
                    stream.context = self
                    self._default = stream
        return self._default

    def all_streams(self) -> list[Stream]:
        """Every stream with possible work, the default one first."""
        default = () if self._default is None else (self._default,)
        return [*default, *self.streams.values()]

    def release(self) -> None:
        """Finish all work and destroy the streams."""
        self.alive = False
        CONTEXTS.discard(self.handle)
        for handle in list(self.streams):
            if handle in STREAMS.origins:
                findings.leave_behind(findings.Leak(Kind.STREAM_LEAKED, STREAMS.origins[handle]))
            STREAMS.discard(handle)
        STREAMS.discard(self.default_handle)
        for stream in self.all_streams():
            ordering.abandoned(stream)
            _end(stream)
        self.streams.clear()


CONTEXTS: Table[Context] = Table(
    "aclrtContext", _bad_handle, lambda context: Kind.DEVICE_NOT_RESET if context.primary else Kind.CONTEXT_LEAKED
)
STREAMS: Table[Stream] = Table("aclrtStream", _bad_handle, lambda _: Kind.STREAM_LEAKED)
EVENTS: Table[Event] = Table("aclrtEvent", _bad_handle, lambda _: Kind.EVENT_LEAKED)

_lock = threading.RLock()
_primaries: dict[int, Context] = {}
_set_counts: dict[int, int] = {}
_thread = threading.local()


def configure_engine() -> None:
    """Take the engine that the environment asks for."""
    engines.configure(in_use=bool(len(CONTEXTS) or DEVICE.used))


def device_count() -> int:
    """How many devices there are."""
    configure_engine()
    return engines.current.count


def device_id(value: Any) -> int:
    """The number of an existing device."""
    number, count = integer("deviceId", value, INT32_MIN, INT32_MAX), device_count()
    if not 0 <= number < count:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_INVALID_DEVICEID, f"deviceId is {number}, expected 0 to {count - 1}"
        )
    return number


def context_or_none() -> Context | None:
    """The calling thread's context, if it has one."""
    context: Context | None = getattr(_thread, "context", None)
    return context if context is not None and context.alive else None


def current_context() -> Context:
    """The calling thread's context."""
    context = context_or_none()
    if context is None:
        raise Mistake(Kind.NO_CURRENT_DEVICE, "this thread has no current device, expected aclrtSetDevice before")
    return context


def make_current(context: Context) -> None:
    """Let `context` be the calling thread's."""
    _thread.context = context


def is_set(device: int) -> bool:
    """True if the device's primary context exists."""
    return device in _primaries


def set_device(device: int) -> None:
    """Make the device's primary context current and count the call."""
    with _lock:
        _set_counts[device] = _set_counts.get(device, 0) + 1
        if device not in _primaries:
            _primaries[device] = Context(device, primary=True)
        make_current(_primaries[device])


def reset_device(device: int, *, force: bool = False) -> None:
    """Take back one call of `set_device`, or all; the last one releases the primary context."""
    with _lock:
        count = _set_counts.get(device, 0)
        if count == 0:
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_CONTEXT_RELEASE_ERROR,
                f"deviceId {device} is not set, expected one aclrtSetDevice for each aclrtResetDevice",
            )
        _set_counts[device] = 0 if force else count - 1
        released = None if _set_counts[device] else _primaries.pop(device)
    if released is not None:
        released.release()


def create_stream() -> int:
    """A new stream in the current context."""
    context = current_context()
    stream = engines.current.stream(context.device, is_default=False)
    stream.context = context
    handle = STREAMS.add(stream)
    context.streams[handle] = stream
    return handle


def destroy_stream(handle: Any, *, force: bool = False) -> None:
    """Finish the stream's work and destroy it; by force, what has not begun is dropped."""
    if STREAMS.get(handle, "stream").is_default:
        raise InvalidArgument("stream is the default one of its context, expected one of aclrtCreateStream", "stream")
    stream = STREAMS.pop(handle, "stream")
    for context in CONTEXTS.values():
        context.streams.pop(int(handle), None)
    if force:
        stream.drop()
        reports.forget(stream)
    _end(stream)
    tasks = ordering.closed(stream)
    if tasks and not force:
        waited = "expected aclrtSynchronizeStream before"
        tolerate(Kind.STREAM_DESTROYED_BUSY, f"nothing has waited for {tasks[0]}, {waited}")


def _end(stream: Stream) -> None:
    """Finish a stream's work and close it."""
    if reports.has_subscriber(stream):
        reports.finish(stream.wait, stream)
        reports.forget(stream)
    stream.close()


def default_handle() -> int:
    """A handle of the current context's default stream, which lives as long as its context."""
    context = current_context()
    if context.default_handle == 0:
        context.default_handle = STREAMS.add(context.default_stream)
        STREAMS.origins.pop(context.default_handle, None)  # the context answers for it
    return context.default_handle


def stream_of(handle: Any) -> Stream:
    """The stream that a handle means, to be given work: one of the current context; null means its default stream."""
    context = current_context()
    if handle is None or (type(handle) is int and handle == 0):
        return context.default_stream
    stream = STREAMS.get(handle, "stream")
    if stream.context is not context:
        raise Mistake(
            Kind.WRONG_CONTEXT,
            "stream belongs to another context than this thread's current one, expected aclrtSetCurrentContext before",
        )
    return stream


def any_stream(handle: Any) -> Stream:
    """The stream that a handle means, to be waited for or asked about."""
    context = current_context()
    return context.default_stream if handle is None or handle == 0 else STREAMS.get(handle, "stream")


def wait_for_default_stream() -> int:
    """Let the work of the calling thread's default stream finish, if it has one; the thread's device."""
    context = current_context()
    default = context._default
    if default is not None:
        if not default.idle:
            default.wait()
        if findings.strict:
            ordering.synchronised(default)
    return context.device


def synchronize_streams(device: int | None = None, seconds: float | None = None) -> None:
    """Wait for every stream (of one device); then raise the first failure among them."""
    contexts = [context for context in CONTEXTS.values() if device is None or context.device == device]
    failures = [stream.finish(seconds) for context in contexts for stream in context.all_streams()]
    for failure in failures:
        if failure is not None:
            raise failure
