"""Where the program touches device memory through a plain pointer: a fault of a checked run becomes a finding.

On a device the program would end there. Here it gets what it asked for: the pages around the address are opened until
its next call of the interface. The handler runs in the thread that faulted, in the middle of the program's own code,
where no lock of ours is held; Python is entered as from any foreign thread.
"""

from __future__ import annotations

import ctypes
import platform
import signal
import sys
from collections.abc import Callable
from typing import Any

from . import arena, findings
from .blocks import DEVICE
from .findings import Kind
from .places import Place

_SA_SIGINFO = 4
_DEFAULT, _IGNORE = 0, 1
_SI_ADDR = 16  # where siginfo_t has the address
_PROGRAM_COUNTER = {"x86_64": 168, "aarch64": 440}.get(platform.machine())  # where ucontext_t has it
_ERROR_CODE = {"x86_64": 192}.get(platform.machine())
_WRITE = 2  # of the error code

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """struct sigaction of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def _ignoring_the_counter(_: int) -> Place | None:
    return findings.place()


place: Callable[[int], Place | None] = _ignoring_the_counter
"""Where an address of the program's code is. A door of another language puts its own function here."""

_before = _Action()
_installed = False


def install() -> None:
    """Handle faults from now on, where there is guarded memory and the processor is known."""
    global _installed
    guarded = arena.find("device", guarded=True) if sys.platform == "linux" and _PROGRAM_COUNTER is not None else None
    if guarded is None or _installed:
        return
    action = _Action(handler=ctypes.cast(_entry, ctypes.c_void_p), flags=_SA_SIGINFO)
    _installed = _libc.sigaction(signal.SIGSEGV, ctypes.byref(action), ctypes.byref(_before)) == 0


def uninstall() -> None:
    """Leave faults to whoever had them before."""
    global _installed
    arena.close_pages()
    if _installed:
        _installed = False
        _libc.sigaction(signal.SIGSEGV, ctypes.byref(_before), None)


def _handle(number: int, info: int, context: int) -> None:
    address = ctypes.c_size_t.from_address(info + _SI_ADDR).value
    guarded = arena.find("device", guarded=True)
    if guarded is None or address not in guarded or not findings.strict:
        _leave_to_others(number, info, context)
        return
    counter = ctypes.c_size_t.from_address(context + (_PROGRAM_COUNTER or 0)).value
    writes = _ERROR_CODE is not None and ctypes.c_size_t.from_address(context + _ERROR_CODE).value & _WRITE
    block = DEVICE.find(address)
    if block is None:
        where = "which is in no block"
    else:
        offset = f"{address - block.address} bytes into a block of {block.size}"
        where = offset if block.alive else f"{offset} that was freed"
        if writes:
            block.written.add(0, block.size)
    done = "writes to" if writes else "reads"
    findings.note_at(Kind.HOST_ACCESS, f"the program {done} device memory at {address:#x}, {where}", place(counter))
    arena.open_page(address)


def _leave_to_others(number: int, info: int, context: int) -> None:
    """A fault that is none of ours: the handler before ours, or the end of the process as the instruction repeats."""
    if _before.handler in (None, _DEFAULT, _IGNORE):
        default = _Action(handler=_DEFAULT)
        _libc.sigaction(number, ctypes.byref(default), None)
    elif _before.flags & _SA_SIGINFO:
        _HANDLER(_before.handler)(number, info, context)
    else:
        ctypes.CFUNCTYPE(None, ctypes.c_int)(_before.handler)(number)


_entry = _HANDLER(_handle)
_libc: Any = ctypes.CDLL(None)
