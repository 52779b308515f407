"""What C pointers point to, which is asked about before it is followed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ...core.errors import InvalidArgument
from ..acl import raw

PAGE = 4096
LONGEST_TEXT = 1 << 16


def text_at(name: str, address: int) -> bytes | None:
    """The string at an address, without its final zero."""
    if not address:
        return None
    text = b""
    while len(text) < LONGEST_TEXT:
        start = address + len(text)
        room = PAGE - start % PAGE
        if not raw.accessible(start, room, write=False):
            raise untouchable(name, start, 1, "readable")
        length = _length()(start, room)  # sees nothing behind the zero, as a sanitizer insists
        text += ctypes.string_at(start, length)
        if length < room:
            return text
    raise InvalidArgument(f"{name} has no end within {LONGEST_TEXT} bytes, expected a string", name)


@cache
def _length() -> Callable[[int, int], int]:
    """C's strnlen."""
    length: Any = ctypes.CDLL(None).strnlen
    length.restype, length.argtypes = ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t)
    return length  # type: ignore[no-any-return]  # a ctypes function


def untouchable(name: str, address: int, size: int, expected: str) -> InvalidArgument:
    """The error for memory that is not there."""
    return InvalidArgument(f"{name} {address:#x} is not mapped for {size} bytes, expected {expected} memory", name)
