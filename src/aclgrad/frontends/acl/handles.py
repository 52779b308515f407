"""Handles: integers that stand for objects, so that a stale or foreign one is recognised instead of followed.

A handle is never used twice, and lies where no pointer can: bits 48 and up make the address non-canonical on x86-64
and on AArch64 (whose top byte may be ignored), so a stray dereference faults at once.

    bits 48-63  0x4AC1      bits 40-47  kind      bits 0-39  serial number
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from ...core.errors import InvalidArgument, NullArgument
from . import findings
from .arguments import as_int, shown
from .places import Place

T = TypeVar("T")

_PREFIX = 0x4AC1
_SERIAL_BITS = 40
_KIND_BITS = 8


class Table(Generic[T]):
    """All live objects of one kind, by handle. `invalid` makes the error for a handle that is not one of them.

    `leak` says what it is to leave an object behind, `gone` what a handle is that was one of them; `discarded` counts
    those. In a checked run `origins` keeps where objects were made, as long as the program has to destroy them itself.
    """

    _tables: ClassVar[list[Table[Any]]] = []

    def __init__(
        self,
        kind: str,
        invalid: Callable[[str], Exception] = InvalidArgument,
        leak: Callable[[T], findings.Kind] | None = None,
        gone: str | None = None,
    ) -> None:
        self.kind = kind
        self._gone = gone or f"a destroyed handle: {kind}"
        self._invalid = invalid
        self._base = (_PREFIX << _KIND_BITS | len(Table._tables)) << _SERIAL_BITS
        self._serials = itertools.count(1)
        self._newest = 0
        self._objects: dict[int, T] = {}
        self.discarded = 0
        self._leak = leak
        self.origins: dict[int, Place | None] = {}
        Table._tables.append(self)
        if leak is not None:
            findings.leak_source(self.leaks)

    def __len__(self) -> int:
        return len(self._objects)

    def values(self) -> list[T]:
        """The live objects, oldest first."""
        return list(self._objects.values())

    def add(self, item: T) -> int:
        """A new handle for `item`."""
        handle = self._newest = self._base | next(self._serials)
        self._objects[handle] = item
        if findings.strict:
            self.origins[handle] = findings.place()
        return handle

    def find(self, handle: Any) -> T | None:
        """The object, or None for everything that is not a live handle of this kind."""
        return self._objects.get(handle) if type(handle) is int else None

    def get(self, handle: Any, name: str) -> T:
        """The object of the handle passed as argument `name`."""
        item = self._objects.get(handle) if type(handle) is int else None
        return item if item is not None else self._insist(handle, name, self._objects.get)

    def pop(self, handle: Any, name: str) -> T:
        """Like `get`, and the handle is destroyed."""
        return self._insist(handle, name, self.discard)

    def discard(self, handle: int) -> T | None:
        """Destroy the handle if it is still live."""
        if self.origins:
            self.origins.pop(handle, None)
        self.discarded += 1
        return self._objects.pop(handle, None)

    def leaks(self) -> Iterator[findings.Leak]:
        """What was left behind; asked again, only what came after."""
        for handle, place in list(self.origins.items()):
            self.origins.pop(handle, None)
            item = self._objects.get(handle)
            if item is not None and self._leak is not None:
                yield findings.Leak(self._leak(item), place)

    def _insist(self, handle: Any, name: str, take: Callable[[int], T | None]) -> T:
        """The object after all (a handle may be a numpy integer), or the error that says what it is instead."""
        number = 0 if handle is None else as_int(name, handle)
        if number == 0:
            raise NullArgument(f"{name} is null, expected a handle: {self.kind}", name)
        item = take(number)
        if item is None:
            raise self._invalid(f"{name} is {self._origin(number)}, expected a live handle: {self.kind}")
        return item

    def _origin(self, number: int) -> str:
        for table in Table._tables:
            if number in table._objects:
                return f"a handle of another kind: {table.kind}"
            if table._base < number <= table._newest:
                return table._gone
        return f"{shown(number)}, which is not a handle"
