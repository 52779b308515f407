"""Which work is known to be done, and which memory it touches: how a checked run finds races.

On a device every task of a stream runs later, whenever the stream comes to it. Nobody may count on it but work that is
ordered behind it: on the same stream, behind an event, or after a synchronisation. What is known to be done is a clock:
for each stream, how many of its tasks. The host has one, fed by synchronisations, and what it knows to be done is
forgotten; every stream has one, fed by the events it waits for; an event has the clock of its recording. So whether two
tasks race does not depend on how quickly they happen to run here.

The clocks know nothing of how the program's threads wait for each other: what one of them has synchronised counts for
all. The null stream is never said to race with another stream, only with the host.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import findings
from .boundary import tolerate
from .findings import Kind, Leak, leak_source
from .places import Place

if TYPE_CHECKING:
    from .streams import Stream

REMEMBERED_TASKS = 4096

Clock = dict[int, int]


class Touch(NamedTuple):
    """Bytes from `start` to `end` that a task reads or writes; not `dense` if it leaves some between them alone."""

    start: int
    end: int
    written: bool
    dense: bool = True


class Task(NamedTuple):
    """One task that nobody has waited for yet."""

    number: int
    what: str
    touches: Sequence[Touch]
    place: Place | None

    def __str__(self) -> str:
        return f"{self.what} of {self.place or 'an unknown place'}"


class Line:
    """What a stream was given, and what is done when its next task begins."""

    __slots__ = ("clock", "is_default", "pending", "serial", "submitted")

    def __init__(self, serial: int, is_default: bool) -> None:
        self.serial = serial
        self.is_default = is_default
        self.submitted = 0
        self.clock: Clock = {}
        self.pending: deque[Task] = deque(maxlen=REMEMBERED_TASKS)


_lock = threading.RLock()
_serials = itertools.count()
_lines: dict[Stream, Line] = {}
_host: Clock = {}
_abandoned: list[Task] = []


def submitted(stream: Stream, what: str, touches: Sequence[Touch]) -> None:
    """A stream is about to get a task; refused if it races with another stream's."""
    with _lock:
        line = _line(stream)
        for other in _lines.values():
            if other is line or other.is_default or line.is_default:
                continue
            done = line.clock.get(other.serial, 0)
            for task in other.pending:
                if task.number > done and _clash(task.touches, touches):
                    tolerate(Kind.STREAM_RACE, f"{what} touches memory of {task} on another stream, expected an event")
        line.submitted += 1
        line.pending.append(Task(line.submitted, what, touches, findings.place()))


def touched(what: str, touches: Sequence[Touch]) -> None:
    """The host is about to touch memory; refused if that races with a task."""
    with _lock:
        for line in _lines.values():
            for task in line.pending:
                if _clash(task.touches, touches):
                    tolerate(Kind.COPY_RACE, f"{what} touches memory of {task}, expected a synchronisation before")


def freed(start: int, end: int) -> None:
    """A block was freed; a mistake if a task may still use it. Either way its addresses mean nothing any more."""
    users = []
    with _lock:
        for line in _lines.values():
            for k, task in enumerate(line.pending):
                kept = [touch for touch in task.touches if touch.end <= start or end <= touch.start]
                if len(kept) != len(task.touches):
                    users.append(task)
                    line.pending[k] = task._replace(touches=kept)
    if users:
        tolerate(Kind.FREED_IN_USE, f"memory of {users[0]} was freed, expected a synchronisation before")


def closed(stream: Stream) -> list[Task]:
    """A stream is destroyed; the tasks nobody has waited for."""
    with _lock:
        line = _lines.pop(stream, None)
        if line is None:
            return []
        for clock in (_host, *(other.clock for other in _lines.values())):
            clock.pop(line.serial, None)
        return list(line.pending)


def abandoned(stream: Stream) -> None:
    """A stream ends with its context; what nobody has waited for is left behind."""
    _abandoned.extend(closed(stream))


def recorded(stream: Stream) -> Clock:
    """What is done when an event recorded now is reached."""
    with _lock:
        line = _line(stream)
        return {**line.clock, line.serial: line.submitted}


def followed(stream: Stream, clock: Clock) -> None:
    """Later tasks of a stream wait for an event."""
    with _lock:
        _advance(_line(stream).clock, clock)


def reached(clock: Clock) -> None:
    """The host has waited for an event, or asked and was told that it is reached."""
    with _lock:
        _advance(_host, clock)
        for line in _lines.values():
            done = _host.get(line.serial, 0)
            while line.pending and line.pending[0].number <= done:
                line.pending.popleft()


def synchronised(*streams: Stream) -> None:
    """The host has waited for all work of these streams, or asked and was told that it is done."""
    for stream in streams:
        if stream in _lines:
            reached(recorded(stream))


def _line(stream: Stream) -> Line:
    line = _lines.get(stream)
    if line is None:
        line = _lines[stream] = Line(next(_serials), stream.is_default)
    return line


def _advance(clock: Clock, other: Clock) -> None:
    clock.update(_later(clock, other))


def _later(clock: Clock, other: Clock) -> Clock:
    """Where `other` is ahead of `clock`."""
    return {serial: number for serial, number in other.items() if number > clock.get(serial, 0)}


def _clash(earlier: Sequence[Touch], later: Sequence[Touch]) -> bool:
    """True if both certainly touch a common byte and one of them writes it."""
    return any(
        a.start < b.end and b.start < a.end and (a.written or b.written) and a.dense and b.dense
        for a in earlier
        for b in later
    )


def _never_synchronised() -> Iterator[Leak]:
    with _lock:
        tasks = [*_abandoned, *(task for line in _lines.values() for task in line.pending)]
        _abandoned.clear()
        synchronised(*_lines)
    for task in tasks:
        yield Leak(Kind.NEVER_SYNCHRONISED, task.place)


leak_source(_never_synchronised)
