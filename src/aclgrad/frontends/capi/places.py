"""Where in a C program a call of the interface came from: return addresses, and what debug information says."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ..acl import faults, findings
from ..acl.places import DEEPEST, Place, PythonPlace, python_place

KEPT_PLACES = 1 << 14
_ENTRY = "main"
_FOREIGN = re.compile(
    r"^(libc|libpthread|libstdc\+\+|libc\+\+|ld-linux[^/]*|libffi|libpython[\d.]*|_ctypes\.[^/]*)\.so(\.[\d.]+)?$"
)
"""Libraries that call the program or are called by it on the way here, and are none of it."""
_SYSTEM_HEADER = re.compile(r"(/usr/include/|.*/include/c\+\+/)")
"""What a program has compiled in from there is no line of its own: std::copy and what it is made of."""
_MOST_FAULT_CALLS = 128

_RELOCATABLE = 3  # ET_DYN of an ELF file: addresses count from where it was loaded


class _Symbol(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_size_t),
    )


class CPlace(Place):
    """Return addresses, the innermost first. A Python that calls C functions adds its own lines."""

    __slots__ = ("_addresses", "_python")

    def __init__(self, addresses: tuple[int, ...], python: PythonPlace | None = None) -> None:
        self._addresses = addresses
        self._python = python

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CPlace) and (self._addresses, self._python) == (other._addresses, other._python)

    def __hash__(self) -> int:
        return hash(self._addresses)

    @classmethod
    def look_up(cls, places: Iterable[Place]) -> None:
        """Ask for all addresses at once: a tool has to be started for each file."""
        _look_up({address for place in places if isinstance(place, CPlace) for address in place._addresses})

    def frames(self) -> tuple[str, ...]:
        """Each as `file:line in function`, or `program+0x1f in function`, as far as it can be known; up to main."""
        _look_up(set(self._addresses))
        frames: list[str] = []
        for address in self._addresses:
            frames += _texts[address]
            if frames and frames[-1].endswith(f" in {_ENTRY}"):
                break
        frames = [frame for frame in frames if not _SYSTEM_HEADER.match(frame)] or frames
        if self._python is not None:
            frames += self._python.frames()
        return tuple(frames[:DEEPEST]) or tuple(f"{address:#x}" for address in self._addresses[:1])


def use(caller: int, tracing: int, embedded: bool) -> None:
    """Let the library tell the checker where a thread's present call came from.

    `caller` is the address of a C function that returns where the calls of the present thread are, as their number and
    their return addresses. At `tracing` is a flag that makes it look for more than the innermost.
    """
    present = ctypes.CFUNCTYPE(ctypes.c_size_t)(caller)
    wants_all = ctypes.c_int.from_address(tracing)
    word = ctypes.sizeof(ctypes.c_size_t)
    size = (DEEPEST + 1) * word
    known: dict[bytes, CPlace] = {}

    def place() -> Place | None:
        calls = ctypes.string_at(present(), size)
        count = calls[0] if sys.byteorder == "little" else calls[word - 1]
        if not count:
            return python_place()
        calls = calls[word : word + count * word]
        found = known.get(calls) if embedded else None
        if found is None:
            found = CPlace(struct.unpack(f"{count}N", calls), None if embedded else python_place())
            if len(known) >= KEPT_PLACES:
                known.clear()
            known[calls] = found
        return found

    def trace(strict: bool) -> None:
        wants_all.value = strict

    findings.place = place
    findings.follow_mode(trace)
    faults.place = _place_of_fault


def _place_of_fault(counter: int) -> Place:
    """The calls that led to an instruction of the program, seen from inside a signal handler."""
    addresses = (ctypes.c_void_p * _MOST_FAULT_CALLS)()
    count = _libc.backtrace(addresses, len(addresses))
    calls = [address or 0 for address in addresses[:count]]
    outer = calls[calls.index(counter) + 1 :] if counter in calls else []
    return CPlace((counter + 1, *outer))  # a return address lies behind its call


_texts: dict[int, list[str]] = {}


def _look_up(addresses: set[int]) -> None:
    by_file: dict[str, list[tuple[int, int, str]]] = {}
    for address in addresses - _texts.keys():
        _texts[address] = []
        symbol = _Symbol()
        if address and _libc.dladdr(address, ctypes.byref(symbol)) and symbol.file:
            file = os.fsdecode(symbol.file)
            if not _FOREIGN.match(Path(file).name):
                name = symbol.name.decode(errors="replace") if symbol.name else ""
                offset = address - symbol.base if _is_relocatable(file) else address
                by_file.setdefault(file, []).append((address, offset, name))
    for file, wanted in by_file.items():
        sources = _sources(file, [offset - 1 for _, offset, _ in wanted])  # the call itself, not what follows it
        for address, offset, name in wanted:
            lines = sources.get(offset - 1) or [("", "")]
            _texts[address] = [
                _text(line or f"{Path(file).name}+{offset:#x}", function or name) for function, line in lines
            ]


def _text(where: str, function: str) -> str:
    return f"{where} in {function}" if function else where


@cache
def _is_relocatable(file: str) -> bool:
    try:
        with Path(file).open("rb") as elf:
            return elf.read(18)[16:18] == _RELOCATABLE.to_bytes(2, "little")
    except OSError:
        return True


def _sources(file: str, offsets: list[int]) -> dict[int, list[tuple[str, str]]]:
    """[(function, file:line)] by offset, calls that were inlined before their callers; empty where nothing is known."""
    tool = shutil.which("addr2line")
    if tool is None:
        return {}
    command = [tool, "-a", "-i", "-f", "-C", "-e", file, *map(hex, offsets)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, list[tuple[str, str]]] = {}
    present: list[tuple[str, str]] = []
    lines = iter(answer.splitlines())
    for line in lines:
        if line.startswith("0x"):
            present = found[int(line, 16)] = []
        else:
            present.append((_function(line), _line(next(lines, ""))))
    return found


def _line(text: str) -> str:
    where = text.partition(" (")[0]
    return "" if "?" in where or where.endswith(":0") else where


def _function(signature: str) -> str:
    """The name of a function without its parameters; those of a lambda are part of its name."""
    if "?" in signature:
        return ""
    name = signature.replace("(anonymous namespace)::", "").removesuffix(" const")
    if not name.endswith(")"):
        return name
    depth = 0
    for k in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[k], 0)
        if depth == 0:
            return name[:k] or name
    return name


_libc: Any = ctypes.CDLL(None)
_libc.dladdr.argtypes = (ctypes.c_size_t, ctypes.POINTER(_Symbol))
