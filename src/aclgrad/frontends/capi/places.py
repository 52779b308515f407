"""Where in a program a call of the C interface came from, for messages of the checker."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from ..acl import findings


class _Symbol(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_size_t),
    )


class ReturnAddress(int):
    """Where a call returns to; its text is looked up when it is asked for."""

    def __str__(self) -> str:
        return place_of(int(self)) or f"{int(self):#x}"


def use(caller: int) -> None:
    """Let `caller`, the address of a C function, tell the checker where a thread's present call came from."""
    present = ctypes.CFUNCTYPE(ctypes.c_size_t)(caller)

    def place() -> object:
        address = present()
        return ReturnAddress(address) if address else findings.nearest_frame()

    findings.place = place


@lru_cache(maxsize=4096)
def place_of(address: int) -> str | None:
    """`file:line in function` of a return address, or `program+0x1f in function`, as far as it can be known."""
    symbol = _Symbol()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_size_t, ctypes.POINTER(_Symbol))
    if not address or not dladdr(address, ctypes.byref(symbol)) or not symbol.file:
        return None
    file, offset = os.fsdecode(symbol.file), address - symbol.base
    function, line = _source(file, offset - 1)  # the call itself, not what follows it
    if not function and symbol.name:
        function = symbol.name.decode(errors="replace")
    where = line or f"{Path(file).name}+{offset:#x}"
    return f"{where} in {function}" if function else where


def _source(file: str, offset: int) -> tuple[str, str]:
    """(function, file:line) as symbols and debug information have them; empty where they have not."""
    tool = shutil.which("addr2line")
    if tool is None:
        return "", ""
    command = [tool, "-f", "-C", "-e", file, hex(offset)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "", ""
    function, _, line = answer.strip().partition("\n")
    line = line.partition(" (")[0]
    name = function.replace("(anonymous namespace)::", "").partition("(")[0]
    return ("" if "?" in function else name), ("" if "?" in line else line)
