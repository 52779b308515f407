"""Streams: in-order, asynchronous work, one daemon worker thread per stream, started with its first queued task.

A task declared small runs in the calling thread when the stream is idle, because switching threads costs more than such
a task does; the order of the stream is kept either way. A failed task does not stop the stream: the first failure since
the last synchronisation is reported by the next one.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from .boundary import AclRuntimeError, logger
from .enums import AclError

EXIT_GRACE_SECONDS = 5.0

Task = Callable[[], object]


class Stream:
    """A queue of tasks and the thread that works it off."""

    def __init__(self) -> None:
        self._forget_work()

    def _forget_work(self) -> None:
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._queue: deque[Task] = deque()
        self._pending = 0  # queued or running in the worker
        self._failure: AclRuntimeError | None = None
        self._worker: threading.Thread | None = None
        self._closed = False

    @property
    def idle(self) -> bool:
        """True if all submitted work is done."""
        return not self._pending

    def submit(self, task: Task, *, small: bool = False) -> None:
        """Run `task` after everything submitted before it; a small one at once if nothing is before it."""
        with self._lock:
            if self._closed:
                raise AclRuntimeError(AclError.ACL_ERROR_RT_INVALID_HANDLE, "the stream was destroyed")
            if small and not self._pending:
                try:
                    task()
                except Exception as error:  # noqa: BLE001  kept for the next synchronisation
                    self._fail(error)
                return
            self._queue.append(task)
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

    def finish(self, seconds: float | None = None) -> AclRuntimeError | None:
        """Wait until all submitted work is done; its first failure since the last call."""
        with self._lock:
            self.wait(seconds)
            failure, self._failure = self._failure, None
        return failure

    def synchronize(self, seconds: float | None = None) -> None:
        """Like `finish`, and the failure is raised."""
        failure = self.finish(seconds)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Finish the submitted work, accept no more, and let the worker end."""
        with self._lock:
            self.wait()
            self._closed = True
            self._work.notify()

    def abandon(self, deadline: float) -> None:
        """Finish what can be finished by `deadline` (monotonic seconds) and drop the rest."""
        with self._lock:
            if not self._drained.wait_for(lambda: not self._pending, max(deadline - time.monotonic(), 0)):
                logger.warning("%d queued tasks were dropped at exit", len(self._queue))
                self._pending -= len(self._queue)
                self._queue.clear()

    def _start(self) -> None:
        self._worker = threading.Thread(target=self._run, name="aclgrad-stream", daemon=True)
        self._worker.start()
        _working.add(self)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if self._closed:
                        return
                    self._work.wait()
                task = self._queue.popleft()
            try:
                task()
            except BaseException as error:  # noqa: BLE001  the worker outlives whatever a task does
                self._fail(error)
            del task  # what it kept alive is released before the stream counts as drained
            with self._lock:
                self._pending -= 1
                if not self._pending:
                    self._drained.notify_all()

    def _fail(self, error: BaseException) -> None:
        logger.error("work on a stream failed", exc_info=error)
        if self._failure is None:
            code = error.code if isinstance(error, AclRuntimeError) else AclError.ACL_ERROR_RT_AICORE_EXCEPTION
            self._failure = AclRuntimeError(code, f"work on the stream failed: {type(error).__name__}: {error}")


_working: weakref.WeakSet[Stream] = weakref.WeakSet()


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
