"""The OpenMP library that torch computes with, and its threads when a process forks.

GNU's OpenMP keeps a pool of threads for every thread that calls it, and does not notice a fork: the child waits for
ever for the threads of its parent's pool, in torch's own operations too. So the pool is given up before a fork, by the
function that OpenMP has for it, and each side starts one of its own when it next needs it. Where that is not possible,
`openmp` answers None in the child.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

HARD = 2  # omp_pause_hard: let go of everything, threads included


class OpenMP(NamedTuple):
    """The functions of torch's OpenMP library that a group of threads needs."""

    parallel: Any  # GOMP_parallel(function, block, threads, flags)
    thread: int  # address of omp_get_thread_num
    threads: int  # address of omp_get_num_threads
    pause: Any  # omp_pause_resource_all(kind), 0 if done; None before OpenMP 5


def openmp() -> OpenMP | None:
    """OpenMP as torch has loaded it; None where it is not GNU's, or would wait for threads that are not there."""
    return None if _pool.orphaned else _library()


@cache
def _library() -> OpenMP | None:
    """Found by asking libtorch_cpu for its own symbols."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        linked = ctypes.CDLL(str(library))
        parallel, thread, threads = linked.GOMP_parallel, linked.omp_get_thread_num, linked.omp_get_num_threads
    except (OSError, AttributeError):
        return None
    parallel.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint)
    parallel.restype = None
    return OpenMP(parallel, address(thread), address(threads), getattr(linked, "omp_pause_resource_all", None))


def address(function: Any) -> int:
    """Where a C function lies."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    if found is None:
        raise OSError(f"{function} has no address")
    return found


def _forked_without_exec() -> bool:
    """Whether this process may have inherited a pool without its threads; Linux notes it among a process's flags."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return bool(int(fields[6]) & 0x40)  # PF_FORKNOEXEC
    except (OSError, ValueError, IndexError):
        return True


class _Pool:
    """What is known of the pool of the calling thread. Giving up one whose threads do not exist would hang, too."""

    def __init__(self) -> None:
        self.owner = None if _forked_without_exec() else os.getpid()  # whose threads are in it, if it is known
        self.orphaned = False
        self._given_up = False

    def before_fork(self) -> None:
        library = _library()
        pause = None if library is None else library.pause
        self._given_up = pause is not None and self.owner == os.getpid() and pause(HARD) == 0

    def in_child(self) -> None:
        self.orphaned = not self._given_up
        self.owner = os.getpid() if self._given_up else None


_pool = _Pool()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pool.before_fork, after_in_child=_pool.in_child)
