"""What a checked run finds: every kind of finding by name, where it happened, and the report.

`ACLGRAD_STRICT=1` checks the program that runs on this runtime. Mistakes are calls that pass without it (some with one
warning in the log) and then return an error code; leaks are what is still there when the runtime ends. Both are kept,
one `Finding` for each kind and place, and written to stderr by aclFinalize and at exit. They are written there and not
logged because the variable asks for exactly this text, whatever the program does with its log. A leak is not a fault of
aclFinalize, which succeeds all the same, and the exit status stays the program's own.

Without the variable nothing is recorded: the check is one look at `strict`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from .enums import AclError, AclnnStatus

VARIABLE = "ACLGRAD_STRICT"
PLACES_SHOWN = 5
PACKAGE = str(Path(__file__).parents[2]) + os.sep


class Kind(Enum):
    """A kind of finding: (name, meaning, code of the refused call; a leak has none)."""

    READ_PAST_END = "read-past-end", "a copy reads past the end of a device block", AclError.ACL_ERROR_RT_PARAM_INVALID
    COPY_RACE = (
        "copy-race",
        "a synchronous copy or fill touches memory of work that was not synchronised",
        AclError.ACL_ERROR_RT_PARAM_INVALID,
    )
    STREAM_RACE = (
        "stream-race",
        "work touches memory of other work on another stream, with no event or synchronisation between them",
        AclError.ACL_ERROR_RT_PARAM_INVALID,
    )
    FREED_IN_USE = (
        "freed-in-use",
        "memory is freed while work that uses it was not synchronised",
        AclError.ACL_ERROR_RT_MEMORY_FREE,
    )
    STREAM_DESTROYED_BUSY = (
        "stream-destroyed-busy",
        "a stream is destroyed with work that was not synchronised",
        AclError.ACL_ERROR_RT_PARAM_INVALID,
    )
    MEMBER_DESTROYED_TWICE = (
        "member-destroyed-twice",
        "a list is destroyed that owns a member already destroyed: the device library frees it twice",
        AclnnStatus.ACLNN_ERR_PARAM_INVALID,
    )
    UNALIGNED_DATA = (
        "unaligned-data",
        "a tensor's data address is no multiple of 32 bytes",
        AclnnStatus.ACLNN_ERR_PARAM_INVALID,
    )
    NOT_INITIALISED = (
        "not-initialised",
        "an aclrt function is called before aclInit or after aclFinalize",
        AclError.ACL_ERROR_UNINITIALIZE,
    )
    NO_CURRENT_DEVICE = (
        "no-current-device",
        "an operator on device memory runs on the null stream of a thread without a device",
        AclError.ACL_ERROR_RT_CONTEXT_NULL,
    )
    FAILED_CALL = "failed-call", "a call returned an error code for another reason", None

    DEVICE_MEMORY_LEAKED = "device-memory-leaked", "memory of aclrtMalloc was never freed", None
    HOST_MEMORY_LEAKED = "host-memory-leaked", "memory of aclrtMallocHost was never freed", None
    TENSOR_LEAKED = "tensor-leaked", "an aclTensor was neither destroyed nor given to a list", None
    SCALAR_LEAKED = "scalar-leaked", "an aclScalar was neither destroyed nor given to a list", None
    ARRAY_LEAKED = "array-leaked", "an aclIntArray, aclFloatArray or aclBoolArray was never destroyed", None
    LIST_LEAKED = "list-leaked", "an aclTensorList or aclScalarList was never destroyed", None
    STREAM_LEAKED = "stream-leaked", "a stream was never destroyed", None
    EVENT_LEAKED = "event-leaked", "an event was never destroyed", None
    CONTEXT_LEAKED = "context-leaked", "a context of aclrtCreateContext was never destroyed", None
    DEVICE_NOT_RESET = "device-not-reset", "aclrtSetDevice was not taken back by aclrtResetDevice", None
    EXECUTOR_NEVER_RUN = "executor-never-run", "phase one was not followed by phase two", None
    EXECUTOR_LEAKED = "executor-leaked", "a repeatable executor was never destroyed", None
    NEVER_SYNCHRONISED = "never-synchronised", "work was submitted and nothing has waited for it", None
    NOT_FINALISED = "not-finalised", "the process ends without aclFinalize", None

    def __init__(self, title: str, meaning: str, code: AclError | AclnnStatus | None) -> None:
        self.title = title
        self.meaning = meaning
        self.code = code

    @property
    def is_mistake(self) -> bool:
        """True for a wrong call, False for something left behind."""
        return self.code is not None or self is Kind.FAILED_CALL


@dataclass(frozen=True)
class Finding:
    """Everything of one kind that was found at one place of the program."""

    kind: Kind
    place: str | None
    message: str
    count: int
    nbytes: int


class Leak(NamedTuple):
    """One thing that was left behind, and where it was made."""

    kind: Kind
    place: object
    nbytes: int = 0


strict = False
"""Whether the program is being checked."""


def nearest_frame() -> str | None:
    """The Python line outside this package that led here."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]  # typeshed: a frame always; the outermost has none behind it
    if frame is None:
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


place: Callable[[], object] = nearest_frame
"""The place of the call being served, or None. A door of another language puts its own function here; what that returns
is hashable, and becomes text when it is part of a finding."""

_lock = threading.RLock()
_sources: list[Callable[[], Iterable[Leak]]] = []
_entries: dict[tuple[Kind, object], Finding] = {}
_reported: dict[tuple[Kind, object], Finding] = {}


def read_mode() -> str | None:
    """Take `strict` from the environment; a value that means nothing leaves it off and is returned."""
    global strict
    value = os.environ.get(VARIABLE, "")
    strict = value == "1"
    return None if value in ("", "0", "1") else value


def leak_source(leaks: Callable[[], Iterable[Leak]]) -> None:
    """Ask `leaks()` for what is left behind whenever a report is due; each thing is told once."""
    _sources.append(leaks)


def note(kind: Kind, message: str) -> None:
    """Keep a mistake, at the place of the present call."""
    _keep(kind, message, place(), 0)


def _keep(kind: Kind, message: str, where: object, nbytes: int) -> None:
    with _lock:
        before = _entries.get((kind, where))
        count, total = (before.count, before.nbytes) if before else (0, 0)
        first = before.message if before else message
        text = None if where is None else str(where)
        _entries[kind, where] = Finding(kind, text, first, count + 1, total + nbytes)


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
        return tuple(_entries.values())


def begin() -> None:
    """The runtime is initialised: what was reported of an earlier life is forgotten."""
    with _lock:
        fresh = _unreported()
        _reported.clear()
        _entries.clear()
        _entries.update(fresh)


def conclude(occasion: str) -> None:
    """Look for leaks, and write everything not yet reported to stderr."""
    with _lock:
        for source in _sources:
            for leak in source():
                leave_behind(leak)
        fresh = _unreported()
        _reported.update(_entries)
    if fresh and sys.stderr is not None:
        sys.stderr.write(report(fresh.values(), occasion))
        sys.stderr.flush()


def _unreported() -> dict[tuple[Kind, object], Finding]:
    """What was found since the last report."""
    fresh = {}
    for key, entry in _entries.items():
        told = _reported.get(key)
        if told is None:
            fresh[key] = entry
        elif entry.count > told.count:
            fresh[key] = replace(entry, count=entry.count - told.count, nbytes=entry.nbytes - told.nbytes)
    return fresh


def report(found: Iterable[Finding], occasion: str) -> str:
    """The findings as text: a paragraph for each kind, mistakes first, with the places that have most of them."""
    by_kind: dict[Kind, list[Finding]] = {}
    for finding in found:
        by_kind.setdefault(finding.kind, []).append(finding)
    total = sum(finding.count for entries in by_kind.values() for finding in entries)
    lines = [f"aclgrad: {total} finding{'s' if total != 1 else ''} at {occasion} ({VARIABLE}=1)"]
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
        if kind.is_mistake:
            yield f"        {entry.message}"
    if len(entries) > PLACES_SHOWN:
        yield f"    and at {len(entries) - PLACES_SHOWN} more places"


def _amount(count: int, nbytes: int) -> str:
    return f"{count} x, {nbytes} bytes" if nbytes else f"{count} x"


read_mode()
