"""Events: marks in a stream that other streams and the host can wait for, and that tell the time."""

from __future__ import annotations

from . import findings, ordering
from .boundary import AclRuntimeError, Mistake
from .enums import AclError
from .findings import Kind
from .streams import Mark, Stream


class Event:
    """The newest mark, if any. Waiting means the mark that was newest when the wait was asked for."""

    __slots__ = ("_clock", "_mark")

    def __init__(self) -> None:
        self._mark: Mark | None = None
        self._clock: ordering.Clock = {}  # what the mark stands for, in a checked run

    def record(self, stream: Stream) -> None:
        """Put a new mark at the end of `stream`."""
        self._mark = stream.mark()
        if findings.strict:
            self._clock = ordering.recorded(stream)

    def reset(self) -> None:
        """Forget the mark."""
        self._mark = None
        self._clock = {}

    def hold(self, stream: Stream) -> None:
        """Let later work of `stream` wait for the mark; an event without a mark holds nothing."""
        if self._mark is not None:
            stream.hold(self._mark)
        elif findings.strict:
            raise Mistake(Kind.EVENT_NEVER_RECORDED, "event was not recorded, expected aclrtRecordEvent before")
        if findings.strict:
            ordering.followed(stream, self._clock)

    def synchronize(self, seconds: float | None = None) -> None:
        """Block the caller until the mark is reached, for so long at most."""
        if not self._recorded("event").wait(seconds):
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, f"the event is not reached after {seconds} s"
            )
        self._observed()

    def settled(self) -> bool:
        """True unless there is a mark that is not reached: nothing waits for the event then."""
        return self._mark is None or self.reached()

    def microseconds(self) -> int:
        """When the mark was reached."""
        mark = self._recorded("event")
        if not mark.reached:
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_PARAM_INVALID, "event is not reached yet, expected a past event"
            )
        return mark.microseconds()

    def reached(self) -> bool:
        """True if there is a mark and its stream has come there."""
        reached = self._mark is not None and self._mark.reached
        if reached:
            self._observed()
        return reached

    def milliseconds_since(self, start: Event) -> float:
        """Time between the marks of `start` and of this event."""
        first, last = start._recorded("startEvent"), self._recorded("endEvent")
        for name, mark in (("startEvent", first), ("endEvent", last)):
            if not mark.reached:
                raise AclRuntimeError(
                    AclError.ACL_ERROR_RT_PARAM_INVALID, f"{name} is not reached yet, expected a past event"
                )
        start._observed()
        self._observed()
        return last.milliseconds_since(first)

    def _observed(self) -> None:
        if findings.strict:
            ordering.reached(self._clock)

    def _recorded(self, name: str) -> Mark:
        mark = self._mark
        if mark is None:
            raise Mistake(Kind.EVENT_NEVER_RECORDED, f"{name} was not recorded, expected aclrtRecordEvent before")
        return mark
