"""The processor as the device: device memory is host memory, a stream is a queue with a worker thread.

The worker is a daemon thread, started with the first queued job. A job declared small runs in the calling thread when
the stream is idle, because switching threads costs more than such a job does; the order of the stream is kept all the
same.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

import torch

from . import arena, findings, raw
from .boundary import AclRuntimeError, logger
from .enums import AclError
from .streams import Job, Mark, Stream

if TYPE_CHECKING:
    from .blocks import Block

EXIT_GRACE_SECONDS = 5.0
NANOSECONDS_PER_MILLISECOND = 1e6


def physical_memory() -> int:
    """Bytes of main memory; a large number where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


class CpuEngine:
    """One device, which is the processor."""

    name = "cpu"
    count = 1
    only_device = torch.device("cpu")

    def __init__(self) -> None:
        self._capacity = physical_memory()
        self.renew()

    def torch_device(self, device: int) -> torch.device:  # noqa: ARG002  there is one
        """Where torch keeps the memory of a device."""
        return self.only_device

    def capacity(self, device: int) -> int:  # noqa: ARG002
        """Bytes of memory a device has."""
        return self._capacity

    def free_memory(self, device: int, used: int) -> int:  # noqa: ARG002
        """Bytes of a device's memory that are free while `used` are handed out."""
        return self._capacity - used

    def device_memory(self, nbytes: int, device: int) -> tuple[int, torch.Tensor]:  # noqa: ARG002
        """(address as the program has it, uninitialised memory); out of the program's reach in a checked run."""
        return _taken(self._arena, nbytes)

    def can_reach(self, device: int, other: int) -> bool:  # noqa: ARG002
        """True: all memory is the processor's."""
        return True

    def owns(self, address: int) -> bool:
        """True for an address of the range that is device memory's alone."""
        return self._arena is not None and address in self._arena

    def host_memory(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """(address, uninitialised memory) for copies."""
        return _taken(self._host_arena, nbytes)

    def owns_host(self, address: int) -> bool:
        """True for an address of the range that is such memory's alone."""
        return self._host_arena is not None and address in self._host_arena

    def stream(self, device: int, *, is_default: bool) -> Stream:  # noqa: ARG002
        """A new stream, or the one that the null handle is to mean."""
        return WorkerStream()

    def at_once(self, job: Job, device: int) -> None:  # noqa: ARG002
        """Run a copy or fill and return when it is done."""
        job()

    def move(self, dst: int, into: Block | None, src: int, out_of: Block | None, count: int) -> None:
        """Copy bytes; `into` and `out_of` are the blocks they lie in."""
        raw.move(dst if into is None else dst + into.shift, src if out_of is None else src + out_of.shift, count)

    def fill(self, dst: int, into: Block | None, value: int, count: int) -> None:
        """Set bytes."""
        raw.fill(dst if into is None else dst + into.shift, value, count)

    def renew(self) -> None:
        """Nothing is in use: take memory that is guarded or not, as the run is checked or not."""
        self._arena = arena.find("device", guarded=findings.strict)
        self._host_arena = arena.find("host", guarded=False)

    def settle(self) -> None:
        """Make memory safe to free: jobs here keep what they use alive."""


def _taken(where: arena.Arena | None, nbytes: int) -> tuple[int, torch.Tensor]:
    """(address, uninitialised memory) from a range of addresses, or from anywhere if there is none."""
    if where is not None:
        return where.take(nbytes)
    memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
    return memory.data_ptr(), memory


class HostMark(Mark):
    """A mark that the stream's worker reaches."""

    __slots__ = ("_reached", "nanoseconds")

    def __init__(self) -> None:
        self._reached = threading.Event()
        self.nanoseconds = 0

    @property
    def reached(self) -> bool:
        """True once the stream has come here."""
        return self._reached.is_set()

    def reach(self) -> None:
        """Called by the stream."""
        self.nanoseconds = time.perf_counter_ns()
        self._reached.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block until the stream has come here; False if it has not in so many seconds."""
        return self._reached.wait(seconds)

    def microseconds(self) -> int:
        """When the stream came here."""
        return self.nanoseconds // 1000

    def milliseconds_since(self, earlier: Mark) -> float:
        """Time from an earlier mark to this one."""
        assert isinstance(earlier, HostMark)
        return (self.nanoseconds - earlier.nanoseconds) / NANOSECONDS_PER_MILLISECOND


class WorkerStream(Stream):
    """A queue of jobs and the thread that works it off."""

    def __init__(self) -> None:
        self._forget_work()

    def _forget_work(self) -> None:
        super().__init__()
        self._work = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._queue: deque[Job] = deque()
        self._pending = 0  # queued or running in the worker
        self._worker: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """True if all submitted work is done."""
        return not self._pending

    def submit(self, job: Job, *, small: bool = False) -> None:
        """Run `job` after everything submitted before it; a small one at once if nothing is before it."""
        with self._lock:
            self._refuse_if_closed()
            if small and not self._pending:
                try:
                    self._run(job)
                except Exception as error:  # noqa: BLE001  kept for the next synchronisation
                    self._fail(error)
                return
            self._queue.append(job)
            self._pending += 1
            if self._worker is None:
                self._start()
            self._work.notify()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all submitted work is done, and leave its failure to be reported."""
        with self._lock:
            if self._pending and not self._drained.wait_for(lambda: not self._pending, seconds):
                raise AclRuntimeError(
                    AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                    f"{self._pending} tasks are unfinished after {seconds} s",
                )

    def close(self) -> None:
        """Finish the submitted work, accept no more, and let the worker end."""
        with self._lock:
            self.wait()
            self._closed = True
            self._work.notify()

    def drop(self) -> bool:
        """Forget submitted work that has not begun."""
        with self._lock:
            dropped = list(self._queue)
            self._pending -= len(dropped)
            self._queue.clear()
            if not self._pending:
                self._drained.notify_all()
        for job in dropped:
            if isinstance(getattr(job, "__self__", None), HostMark):
                job()  # whoever waits for a mark shall not do so for ever
        return True

    def mark(self) -> Mark:
        """A new mark at the end of the submitted work."""
        mark = HostMark()
        self.submit(mark.reach, small=True)
        return mark

    def hold(self, mark: Mark) -> None:
        """Let later work wait for a mark."""
        if not mark.reached:
            self.submit(mark.wait)

    def abandon(self, deadline: float) -> None:
        """Finish what can be finished by `deadline` (monotonic seconds) and drop the rest."""
        with self._lock:
            if not self._drained.wait_for(lambda: not self._pending, max(deadline - time.monotonic(), 0)):
                logger.warning("%d queued tasks were dropped at exit", len(self._queue))
                self.drop()

    def _start(self) -> None:
        self._worker = threading.Thread(target=self._work_off, name="aclgrad-stream", daemon=True)
        self._worker.start()
        _working.add(self)

    def _work_off(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if self._closed:
                        return
                    self._work.wait()
                job = self._queue.popleft()
            try:
                self._run(job)
            except BaseException as error:  # noqa: BLE001  the worker outlives whatever a job does
                self._fail(error)
            del job  # what it kept alive is released before the stream counts as drained
            with self._lock:
                self._pending -= 1
                if not self._pending:
                    self._drained.notify_all()


_working: weakref.WeakSet[WorkerStream] = weakref.WeakSet()


@atexit.register
def _finish_at_exit() -> None:
    deadline = time.monotonic() + EXIT_GRACE_SECONDS
    for stream in list(_working):
        stream.abandon(deadline)


def _forget_in_child() -> None:
    """A forked child has none of its parent's workers, and its locks may be held by threads it does not have."""
    for stream in list(_working):
        stream._forget_work()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
