"""Where in a program a call came from: the calls that led there, made text when it is asked for."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from pathlib import Path
from types import CodeType

PACKAGE = str(Path(__file__).parents[2]) + os.sep
DEEPEST = 12
"""So many calls are kept, the innermost first."""


class Place(ABC, Hashable):
    """The calls that led to one place of the program."""

    @abstractmethod
    def frames(self) -> tuple[str, ...]:
        """Each as `file:line in function`, the innermost first."""

    @classmethod
    def look_up(cls, places: Iterable[Place]) -> None:
        """Prepare the text of many places at once, where that is quicker."""

    def __str__(self) -> str:
        frames = self.frames()
        return frames[0] if frames else "an unknown place"


class PythonPlace(Place):
    """Lines of Python."""

    __slots__ = ("_calls",)

    def __init__(self, calls: tuple[tuple[CodeType, int], ...]) -> None:
        self._calls = calls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PythonPlace) and self._calls == other._calls

    def __hash__(self) -> int:
        return hash(self._calls)

    def frames(self) -> tuple[str, ...]:
        """Each as `file:line in function`, the innermost first."""
        return tuple(f"{code.co_filename}:{line} in {code.co_name}" for code, line in self._calls)


def python_place() -> PythonPlace | None:
    """The Python lines outside this package that led here; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]  # typeshed: a frame always; the outermost has none behind it
    calls: list[tuple[CodeType, int]] = []
    while frame is not None and len(calls) < DEEPEST:
        calls.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return PythonPlace(tuple(calls)) if calls else None
