"""What a checked run finds: where it happened, how often, and the report.

`ACLGRAD_STRICT=1` checks the program that runs on this runtime. Mistakes are calls that pass without it (some with one
warning in the log) and then return an error code; remarks are doubtful calls that go on; leaks are what is still there
when the runtime ends. All are kept, one `Finding` for each kind and place, and written to stderr by aclFinalize and at
exit. They are written there and not logged because the variable asks for exactly this text, whatever the program does
with its log. A leak is not a fault of aclFinalize, which succeeds all the same, and the exit status stays the program's
own: `aclgrad check` makes one from the findings, which it gets through `journal`.

Without the variable nothing is recorded: the check is one look at `strict`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from . import journal
from .kinds import Kind as Kind
from .places import Place, python_place

VARIABLE = "ACLGRAD_STRICT"
PLACES_SHOWN = 5


@dataclass(frozen=True)
class Finding:
    """Everything of one kind that was found at one place of the program. `stack` begins with the place."""

    kind: Kind
    place: str | None
    message: str
    count: int
    nbytes: int
    stack: tuple[str, ...] = ()


class Leak(NamedTuple):
    """One thing that was left behind, and where it was made."""

    kind: Kind
    place: Place | None
    nbytes: int = 0


class _Entry(NamedTuple):
    """A finding whose place is no text yet."""

    message: str
    times: int
    nbytes: int


_Key = tuple[Kind, "Place | None"]

strict = False
"""Whether the program is being checked."""

place: Callable[[], Place | None] = python_place
"""The place of the call being served, or None. A door of another language puts its own function here."""

_lock = threading.RLock()
_followers: list[Callable[[bool], None]] = []
_sources: list[Callable[[], Iterable[Leak]]] = []
_entries: dict[_Key, _Entry] = {}
_reported: dict[_Key, _Entry] = {}


def read_mode() -> str | None:
    """Take `strict` from the environment; a value that means nothing leaves it off and is returned."""
    global strict
    value = os.environ.get(VARIABLE, "")
    strict = value == "1"
    for follower in _followers:
        follower(strict)
    return None if value in ("", "0", "1") else value


def follow_mode(follower: Callable[[bool], None]) -> None:
    """Tell `follower` now, and whenever it changes, whether the program is checked."""
    _followers.append(follower)
    follower(strict)


def leak_source(leaks: Callable[[], Iterable[Leak]]) -> None:
    """Ask `leaks()` for what is left behind whenever a report is due; each thing is told once."""
    _sources.append(leaks)


def note(kind: Kind, message: str) -> None:
    """Keep a mistake, at the place of the present call."""
    _keep(kind, message, place(), 0)


def note_at(kind: Kind, message: str, where: Place | None) -> None:
    """Keep a mistake at another place."""
    _keep(kind, message, where, 0)


def _keep(kind: Kind, message: str, where: Place | None, nbytes: int) -> None:
    with _lock:
        before = _entries.get((kind, where))
        if before is None:
            _entries[kind, where] = _Entry(message, 1, nbytes)
            if journal.is_kept() and kind.is_mistake:  # the program may end before it concludes
                journal.write([_finding((kind, where), _entries[kind, where])])
        else:
            _entries[kind, where] = _Entry(before.message, before.times + 1, before.nbytes + nbytes)


def _finding(key: _Key, entry: _Entry) -> Finding:
    kind, where = key
    stack = () if where is None else where.frames()
    return Finding(kind, stack[0] if stack else None, entry.message, entry.times, entry.nbytes, stack)


def _as_findings(entries: dict[_Key, _Entry]) -> tuple[Finding, ...]:
    """With the places as text, which is looked up for all of them at once."""
    by_type: dict[type[Place], list[Place]] = {}
    for _, where in entries:
        if where is not None:
            by_type.setdefault(type(where), []).append(where)
    for kind, places in by_type.items():
        kind.look_up(places)
    return tuple(_finding(key, entry) for key, entry in entries.items())


def leave_behind(leak: Leak) -> None:
    """Keep a leak that no source will know of when the report is due."""
    _keep(leak.kind, leak.kind.meaning, leak.place, leak.nbytes)


def findings() -> tuple[Finding, ...]:
    """What ACLGRAD_STRICT=1 has found since the runtime was last initialised, one entry for each kind and place.

    Wrong calls are there at once; what was left behind is there after `finalize`. Without ACLGRAD_STRICT=1 it is empty:

        assert acl.finalize() == 0
        assert not acl.findings()
    """
    with _lock:
        return _as_findings(_entries)


def begin() -> None:
    """The runtime is initialised: what was reported of an earlier life is forgotten."""
    with _lock:
        fresh = _unreported()
        _reported.clear()
        _entries.clear()
        _entries.update(fresh)
    if strict and journal.is_kept():
        where = place()
        journal.begin(() if where is None else where.frames())


def conclude(occasion: str) -> None:
    """Look for leaks, and write everything not yet reported to stderr, or into the journal if there is one."""
    with _lock:
        for source in _sources:
            for leak in source():
                leave_behind(leak)
        fresh = _as_findings(_unreported())
        _reported.update(_entries)
    if journal.is_kept():
        journal.write(fresh, occasion)
    elif fresh and sys.stderr is not None:
        sys.stderr.write(report(fresh, f"at {occasion} ({VARIABLE}=1)"))
        sys.stderr.flush()


def _unreported() -> dict[_Key, _Entry]:
    """What was found since the last report."""
    fresh = {}
    for key, entry in _entries.items():
        told = _reported.get(key)
        if told is None:
            fresh[key] = entry
        elif entry.times > told.times:
            fresh[key] = entry._replace(times=entry.times - told.times, nbytes=entry.nbytes - told.nbytes)
    return fresh


def report(found: Sequence[Finding], occasion: str) -> str:
    """The findings as text: a paragraph for each kind, mistakes first, with the places that have most of them."""
    by_kind: dict[Kind, list[Finding]] = {}
    for finding in found:
        by_kind.setdefault(finding.kind, []).append(finding)
    total = sum(finding.count for finding in found)
    lines = [f"aclgrad: {total} finding{'s' if total != 1 else ''} {occasion}"]
    for kind in Kind:
        if kind in by_kind:
            lines += _paragraph(kind, by_kind[kind])
    return "\n".join(lines) + "\n"


def _paragraph(kind: Kind, entries: list[Finding]) -> Iterator[str]:
    total = _amount(sum(entry.count for entry in entries), sum(entry.nbytes for entry in entries))
    yield f"  {kind.title}: {kind.meaning} ({total})"
    entries.sort(key=lambda entry: -entry.count)
    for entry in entries[:PLACES_SHOWN]:
        yield f"    {_amount(entry.count, entry.nbytes)} at {entry.place or 'an unknown place'}"
        for caller in entry.stack[1:]:
            yield f"        called from {caller}"
        if kind.is_mistake:
            yield f"        {entry.message}"
    if len(entries) > PLACES_SHOWN:
        yield f"    and at {len(entries) - PLACES_SHOWN} more places"


def _amount(count: int, nbytes: int) -> str:
    return f"{count} x, {nbytes} bytes" if nbytes else f"{count} x"


def merged(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of several lives or processes: those of one kind and place count together."""
    together: dict[tuple[Kind, tuple[str, ...]], Finding] = {}
    for finding in found:
        key = (finding.kind, finding.stack)
        before = together.get(key)
        together[key] = (
            finding
            if before is None
            else replace(before, count=before.count + finding.count, nbytes=before.nbytes + finding.nbytes)
        )
    return tuple(together.values())


read_mode()
