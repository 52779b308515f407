"""`torch.npu`'s streams and events: the runtime's, whose handles aclnn's functions take.

Ops of torch are done when they return, so they need no stream. What waits is work that a program has given to a stream
through aclnn itself.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ...core.errors import InvalidArgument
from ..acl import boundary, devices, process, rt

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]

_thread = threading.local()


class Stream:
    """A stream of the device; `npu_stream` is its handle."""

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None, **_: Any) -> None:
        require_index(device)
        ready()
        self.priority = priority
        if stream_id == 0:
            self.npu_stream = 0
        else:
            self.npu_stream = _first(rt.create_stream_with_config(max(priority, 0), 0))
            weakref.finalize(self, rt.destroy_stream, self.npu_stream)

    @property
    def device(self) -> Any:
        """Where it is."""
        import torch

        return torch.device("npu", 0)

    @property
    def stream_id(self) -> int:
        """Its handle, 0 for the default stream."""
        return self.npu_stream

    def synchronize(self) -> None:
        """Wait for all work."""
        _done(rt.synchronize_stream(self.npu_stream))

    def query(self) -> bool:
        """Whether all work is done."""
        return bool(_first(rt.stream_query(self.npu_stream)) == 0)

    def record_event(self, event: Event | None = None) -> Event:
        """An event, new or given, at the end of the work."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work wait for all that another stream has by now."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.npu_stream == other.npu_stream

    def __hash__(self) -> int:
        return hash(self.npu_stream)

    def __repr__(self) -> str:
        return f"<torch.npu.Stream device=npu:0 npu_stream={self.npu_stream:#x}>"


class Event:
    """A place in a stream's work."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        del enable_timing, blocking
        if interprocess:
            raise InvalidArgument("interprocess is True, expected False: there is one process", "interprocess")
        ready()
        self.npu_event = _first(rt.create_event())
        weakref.finalize(self, rt.destroy_event, self.npu_event)

    def record(self, stream: Stream | None = None) -> None:
        """Put it at the end of a stream's work."""
        _done(rt.record_event(self.npu_event, (stream or current_stream()).npu_stream))

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream's later work wait for it."""
        _done(rt.stream_wait_event((stream or current_stream()).npu_stream, self.npu_event))

    def query(self) -> bool:
        """Whether it is reached, or was never recorded."""
        return bool(_first(rt.query_event_status(self.npu_event)) == 1)

    def synchronize(self) -> None:
        """Wait until it is reached."""
        _done(rt.synchronize_event(self.npu_event))

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both are reached."""
        return float(_first(rt.event_elapsed_time(self.npu_event, end_event.npu_event)))


def current_stream(device: Any = None) -> Stream:
    """The stream that the calling thread has chosen, the default one at first."""
    require_index(device)
    chosen: Stream | None = getattr(_thread, "stream", None)
    return chosen or default_stream()


def default_stream(device: Any = None) -> Stream:
    """The stream that work is given to if none is named."""
    return Stream(device, stream_id=0)


def set_stream(stream: Stream) -> None:
    """Choose the calling thread's stream."""
    _thread.stream = stream


def stream(stream: Stream | None) -> Any:
    """A context in which a stream is the calling thread's."""
    return stream or current_stream()


def ready() -> None:
    """Let the runtime run, and the calling thread have a device."""
    if not boundary.initialised:
        _done(process.init())
    if devices.context_or_none() is None:
        _done(rt.set_device(0))


def require_index(device: Any) -> int:
    """The number of a device that exists: 0."""
    index = getattr(device, "index", device)
    if isinstance(index, str):
        index = int(index.partition(":")[2] or 0)
    if index not in (None, 0, -1):
        raise InvalidArgument(f"device is {device}, expected npu:0: there is one", "device")
    return 0


def _done(code: int) -> None:
    if code:
        raise RuntimeError(boundary.take_message() or f"error {code}")


def _first(answer: tuple[Any, int]) -> Any:
    value, code = answer
    _done(code)
    return value
