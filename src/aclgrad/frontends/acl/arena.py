"""Where memory lies that the runtime hands out on a processor: ranges of addresses which no other memory ever shares.

Device memory has one and host memory another. So an address tells what it is, also long after its block was freed. In a
checked run device memory is mapped twice: kernels and copies work at one place, and the addresses that the program gets
lie at the other, where nobody may read or write.

    address of the program + shift = address of the memory; shift is 0 if it is not guarded

Blocks of up to `SMALL` bytes have sizes in steps, and a step's freed places are used again, the oldest first. Larger
ones have pages of their own, which go back to the system at once; their addresses come again after the whole range.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections import deque
from functools import partial

import torch

STEP = 512
SMALL = 1 << 16
RANGE = 1 << 42  # of addresses; a page of memory is taken when it is touched first
_SMALLEST_RANGE = 1 << 34
_NO_RESERVE = 0x4000
_DONT_NEED, _REMOVE = 4, 9
_NOTHING, _READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE


class Arena:
    """One range of addresses. Memory that was taken comes back when nobody has its tensor any more."""

    def __init__(self, *, guarded: bool) -> None:
        self._lock = threading.RLock()
        self.guarded = guarded
        self.start, self.size, self.shift = _reserve(guarded)
        self._next = self.start
        self._returned: deque[tuple[int, int]] = deque()  # filled by whatever thread drops the last tensor
        self._small: dict[int, deque[int]] = {}
        self._large: list[tuple[int, int]] = []
        self._owners: dict[int, weakref.ref[ctypes.Array[ctypes.c_uint8]]] = {}

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.start + self.size

    def take(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """(the program's address, the memory) of uninitialised bytes."""
        unit = STEP if nbytes <= SMALL else mmap.PAGESIZE
        room = -(-nbytes // unit) * unit
        with self._lock:
            self._sort_returned()
            freed = self._small.get(room)
            address = freed.popleft() if freed else self._fresh(room, unit)
            buffer = (ctypes.c_uint8 * nbytes).from_address(address + self.shift)
            self._owners[address] = weakref.ref(buffer, partial(self._come_back, address, room))
        return address, torch.frombuffer(buffer, dtype=torch.uint8)

    def _fresh(self, room: int, unit: int) -> int:
        """An address that was not in use yet; at the end of the range, one that is free again."""
        start = -(-self._next // unit) * unit
        if start + room <= self.start + self.size:
            self._next = start + room
            return start
        for k, (begin, size) in enumerate(self._large):
            if size >= room:
                self._large[k] = (begin + room, size - room)
                return begin
        raise MemoryError("no addresses are left for device memory")

    def _come_back(self, address: int, room: int, _: object) -> None:
        if room > SMALL:
            advice = _REMOVE if self.guarded else _DONT_NEED
            _libc.madvise(address + self.shift, room, advice)
        self._returned.append((address, room))

    def _sort_returned(self) -> None:
        while self._returned:
            address, room = self._returned.popleft()
            self._owners.pop(address, None)
            if room <= SMALL:
                self._small.setdefault(room, deque()).append(address)
            else:
                self._large.append((address, room))
                if len(self._large) > 1024:  # neighbours become one, so that larger ones find a place again
                    self._large = _joined(self._large)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, size in sorted(ranges):
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        elif size:
            joined.append((start, size))
    return joined


def _reserve(guarded: bool) -> tuple[int, int, int]:
    """(start, size, shift) of as large a range as the system gives."""
    size = RANGE
    while size >= _SMALLEST_RANGE:
        try:
            if not guarded:
                return _map(size, _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1), size, 0
            file = os.memfd_create("aclgrad")
            try:
                os.ftruncate(file, size)
                memory = _map(size, _READ_WRITE, mmap.MAP_SHARED, file)
                start = _map(size, _NOTHING, mmap.MAP_SHARED, file)
            finally:
                os.close(file)
            return start, size, memory - start
        except OSError:
            size >>= 2
    raise OSError("the system has no range of addresses for device memory")


def _map(size: int, protection: int, flags: int, file: int) -> int:
    start: int | None = _libc.mmap(None, size, protection, flags | _NO_RESERVE, file, 0)
    if start is None or start == ctypes.c_size_t(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    return start


opened: list[int] = []
"""Pages of a guarded range that the program may touch for now."""


def open_page(address: int) -> None:
    """Let the program read and write the page of an address, until `close_pages`."""
    page = address & -mmap.PAGESIZE
    _libc.mprotect(page, mmap.PAGESIZE, _READ_WRITE)
    opened.append(page)


def close_pages() -> None:
    """Forbid the program again what it was allowed to touch."""
    while opened:
        _libc.mprotect(opened.pop(), mmap.PAGESIZE, _NOTHING)


def find(what: str, *, guarded: bool) -> Arena | None:
    """The process's range for a kind of memory, made when first asked for; None where the system cannot give one."""
    key = what, guarded
    if key not in _arenas:
        try:
            _arenas[key] = Arena(guarded=guarded)
        except (OSError, AttributeError):  # another system than Linux, or a limit on addresses
            _arenas[key] = None
    return _arenas[key]


_arenas: dict[tuple[str, bool], Arena | None] = {}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
for _name in ("madvise", "mprotect"):
    getattr(_libc, _name).argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
