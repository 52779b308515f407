"""Findings that a project knows of and lives with, from a file: a kind and a place on each line.

    # of a library that nobody here can change
    device-memory-leaked   *in third_party::*
    unaligned-data         */legacy/*.cpp:*

Both are patterns as in a shell. A place is one of the calls that led to the finding, as the report shows them; without
one, all places are meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .findings import Finding
from .kinds import Kind

_COMMENT = re.compile(r"(^|\s)#.*")
"""A place has a # of its own: that of main::{lambda()#1}."""


@dataclass(frozen=True)
class Suppression:
    """One line of a file."""

    kind: str
    place: str
    source: str

    def covers(self, finding: Finding) -> bool:
        """True if the finding is known and accepted."""
        if not fnmatchcase(finding.kind.title, self.kind):
            return False
        return self.place == "*" or any(fnmatchcase(frame, self.place) for frame in finding.stack)


def parse(text: str, name: str) -> tuple[Suppression, ...]:
    """The suppressions of a file; `name` is what errors call it.

    >>> [known.place for known in parse("copy-race  main.cpp:7 *  # the answer is not used", "known.txt")]
    ['main.cpp:7 *']
    >>> parse("copy-rice *", "known.txt")
    Traceback (most recent call last):
    ValueError: known.txt:1: no kind of finding is like 'copy-rice', expected one such as copy-race
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        kind, _, place = _COMMENT.sub("", line).strip().partition(" ")
        if not kind:
            continue
        if not any(fnmatchcase(each.title, kind) for each in Kind):
            raise ValueError(
                f"{name}:{number}: no kind of finding is like {kind!r}, expected one such as {Kind.COPY_RACE.title}"
            )
        found.append(Suppression(kind, place.strip() or "*", f"{name}:{number}"))
    return tuple(found)


def divide(
    found: Iterable[Finding], known: Sequence[Suppression]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[Suppression, ...]]:
    """(what counts, what is known and accepted, the lines that nothing was found for)."""
    counting: list[Finding] = []
    accepted: list[Finding] = []
    used: set[Suppression] = set()
    for finding in found:
        covering = [each for each in known if each.covers(finding)]
        used.update(covering)
        (accepted if covering else counting).append(finding)
    return tuple(counting), tuple(accepted), tuple(each for each in known if each not in used)
