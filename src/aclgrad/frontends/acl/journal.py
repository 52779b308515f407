"""Findings as lines of a file, for whoever started the program: `ACLGRAD_JOURNAL` names a folder.

Every process appends to a file of its own. A line is written for each mistake when it is found first, so that a program
that crashes has told of it, and for everything at the end; lines of one kind and place supersede each other up to the
next conclusion. Each life of the runtime begins with a line, so that a process is known that has not concluded. With a
journal nothing is written to stderr.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .kinds import Kind

if TYPE_CHECKING:
    from .findings import Finding

VARIABLE = "ACLGRAD_JOURNAL"


def is_kept() -> bool:
    """Whether somebody wants to read one."""
    return bool(os.environ.get(VARIABLE))


def begin(stack: Sequence[str]) -> None:
    """The runtime is initialised, by these calls."""
    _append([json.dumps({"begun": stack})])


def write(found: Iterable[Finding], occasion: str = "") -> None:
    """Append findings; with an occasion they are final."""
    lines = [json.dumps({**as_data(finding), "final": bool(occasion)}) for finding in found]
    if occasion:
        lines.append(json.dumps({"occasion": occasion}))
    _append(lines)


def _append(lines: Iterable[str]) -> None:
    path = Path(os.environ[VARIABLE], f"{os.getpid()}.jsonl")
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    except OSError:  # the folder is gone, and so is whoever asked
        return


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it."""
    return {
        "kind": finding.kind.title,
        "group": finding.kind.group.value,
        "meaning": finding.kind.meaning,
        "message": finding.message,
        "count": finding.count,
        "bytes": finding.nbytes,
        "stack": list(finding.stack),
    }


def from_data(data: dict[str, Any]) -> Finding:
    """The finding that `as_data` was given."""
    from .findings import Finding

    kind = next(kind for kind in Kind if kind.title == data["kind"])
    stack = tuple(data["stack"])
    return Finding(kind, stack[0] if stack else None, data["message"], data["count"], data["bytes"], stack)


def read(folder: Path) -> Sequence[Finding]:
    """What all processes have found: what is final, and what a process told that ended before it could conclude.

    Such a process has not finalised the runtime, which is a finding itself.
    """
    return [finding for path in sorted(folder.glob("*.jsonl")) for finding in _of_process(path)]


def _of_process(path: Path) -> Iterator[Finding]:
    from .findings import Finding

    pending: list[Finding] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            data = json.loads(line)
        except ValueError:  # the process was ended while it wrote
            continue
        if "begun" in data:
            kind, stack = Kind.NOT_FINALISED, tuple(data["begun"])
            pending.append(Finding(kind, stack[0] if stack else None, kind.meaning, 1, 0, stack))
        elif "occasion" in data:
            pending.clear()
        elif data["final"]:
            yield from_data(data)
        else:
            pending.append(from_data(data))
    yield from pending
