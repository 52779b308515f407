"""Events: marks in a stream that other streams and the host can wait for, and that tell the time."""

from __future__ import annotations

import threading
import time

from .boundary import AclRuntimeError
from .enums import AclError
from .streams import Stream

NANOSECONDS_PER_MILLISECOND = 1e6


class Mark:
    """One recording: reached when the stream has done everything submitted before it."""

    __slots__ = ("_reached", "nanoseconds")

    def __init__(self) -> None:
        self._reached = threading.Event()
        self.nanoseconds = 0

    @property
    def reached(self) -> bool:
        """True once the stream has come here."""
        return self._reached.is_set()

    def reach(self) -> None:
        """Called by the stream."""
        self.nanoseconds = time.perf_counter_ns()
        self._reached.set()

    def wait(self) -> None:
        """Block until the stream has come here."""
        self._reached.wait()


class Event:
    """The newest mark, if any. Waiting means the mark that was newest when the wait was asked for."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark: Mark | None = None

    def record(self, stream: Stream) -> None:
        """Put a new mark at the end of `stream`."""
        mark = Mark()
        stream.submit(mark.reach, small=True)
        self.mark = mark

    def reset(self) -> None:
        """Forget the mark."""
        self.mark = None

    def hold(self, stream: Stream) -> None:
        """Let later work of `stream` wait for the mark; an event without a mark holds nothing."""
        mark = self.mark
        if mark is not None and not mark.reached:
            stream.submit(mark.wait)

    def synchronize(self) -> None:
        """Block the caller until the mark is reached."""
        self._recorded("event").wait()

    def milliseconds_since(self, start: Event) -> float:
        """Time between the marks of `start` and of this event."""
        first, last = start._recorded("start"), self._recorded("end")
        for name, mark in (("start", first), ("end", last)):
            if not mark.reached:
                raise AclRuntimeError(
                    AclError.ACL_ERROR_RT_PARAM_INVALID, f"{name} is not reached yet, expected a past event"
                )
        return (last.nanoseconds - first.nanoseconds) / NANOSECONDS_PER_MILLISECOND

    def _recorded(self, name: str) -> Mark:
        mark = self.mark
        if mark is None:
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_PARAM_INVALID, f"{name} was never recorded, expected a recorded event"
            )
        return mark
