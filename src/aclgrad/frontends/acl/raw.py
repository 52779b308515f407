"""Bytes at addresses: move, fill, and ask whether memory may be touched at all.

Asking costs one to three system calls and never faults. Linux can tell readable from writable pages
(MADV_POPULATE_*, since 5.14); elsewhere only unmapped addresses are recognised, and on systems without libc none.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

move = ctypes.memmove
fill = ctypes.memset

_PAGE = mmap.PAGESIZE
_POPULATE_READ, _POPULATE_WRITE = 22, 23
_MS_ASYNC = 1
_MOST_POPULATED = 256 * _PAGE  # takes 0.1 us a page; beyond, reading the kernel's list takes less


def accessible(address: int, size: int, *, write: bool) -> bool:
    """True if `size` bytes at `address` can be read (and written)."""
    if size == 0:
        return True
    if address + size > 2**64:
        return False
    if _populate is None:
        return _mapped(address, size)
    advice = _POPULATE_WRITE if write else _POPULATE_READ
    if size <= _MOST_POPULATED and _on_pages(_populate, address, size, advice):
        return True
    listed = _listed(address, size, write)
    return _on_pages(_populate, address, size, advice) if listed is None else listed


def executable(address: int) -> bool:
    """True if there is code at an address, as far as the system tells."""
    try:
        return any(start <= address < end and "x" in mode for start, end, mode in _mappings())
    except OSError:
        return accessible(address, 1, write=False)


def _mapped(address: int, size: int) -> bool:
    return _libc is None or _on_pages(_libc.msync, address, size, _MS_ASYNC)


def _on_pages(call: ctypes._NamedFuncPointer, address: int, size: int, argument: int) -> bool:
    start = address & -_PAGE
    succeeded: bool = call(start, address + size - start, argument) == 0
    return succeeded


def _listed(address: int, size: int, write: bool) -> bool | None:
    """What the kernel's list of mappings says; None if there is no list.

    It also knows of memory where populating is impossible but access is not, as in device mappings.
    """
    try:
        for start, end, mode in _mappings():
            if start <= address < end:
                if "r" not in mode or (write and "w" not in mode):
                    return False
                if address + size <= end:
                    return True
                address, size = end, address + size - end
    except OSError:
        return None
    return False


def _mappings() -> Iterator[tuple[int, int, str]]:
    """The kernel's list of mappings, in order of addresses: begin, end and mode, such as "r-xp"."""
    with Path("/proc/self/maps").open() as lines:
        for line in lines:
            span, mode = line.split(maxsplit=2)[:2]
            start, end = span.split("-")
            yield int(start, 16), int(end, 16), mode


def _load_libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
        for name in ("msync", "madvise"):
            getattr(libc, name).argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    except (OSError, TypeError, AttributeError):
        return None
    return libc


def _find_populate() -> ctypes._NamedFuncPointer | None:
    probe = ctypes.create_string_buffer(1)
    if _libc is not None and _on_pages(_libc.madvise, ctypes.addressof(probe), 1, _POPULATE_WRITE):
        return _libc.madvise
    return None


_libc = _load_libc()
_populate = _find_populate()
