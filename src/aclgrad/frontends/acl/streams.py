"""Streams: in-order, asynchronous work, and marks in it. What every engine's streams have in common.

A failed task does not stop a stream: the first failure since the last synchronisation is reported by the next one.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from ...core.errors import AclgradError
from . import findings, ordering
from .boundary import AclRuntimeError, logger
from .enums import AclError

Job = Callable[[], object]


_numbers = itertools.count()


class Mark(ABC):
    """A place in a stream: reached when the stream has done everything submitted before it."""

    __slots__ = ()

    @property
    @abstractmethod
    def reached(self) -> bool:
        """True once the stream has come here."""

    @abstractmethod
    def wait(self, seconds: float | None = None) -> bool:
        """Block the caller until the stream has come here; False if it has not in so many seconds."""

    @abstractmethod
    def microseconds(self) -> int:
        """When the stream came here, by a clock that only goes forward."""

    @abstractmethod
    def milliseconds_since(self, earlier: Mark) -> float:
        """Time from an `earlier` mark of the same engine to this one; both are reached."""


class Stream(ABC):
    """Jobs that run one after another, beside the caller."""

    is_default = False
    """True for the stream that the null handle means."""
    context: object = None
    """The context it was made in."""
    priority = flags = 0
    stops_on_failure = False
    """Whether work is dropped that comes after a failure."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self._lock = threading.RLock()
        self._failure: AclRuntimeError | None = None
        self._closed = False

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True if all submitted work is done."""

    @abstractmethod
    def submit(self, job: Job, *, small: bool = False) -> None:
        """Run `job` after everything submitted before it; `small` says that it takes less time than a thread switch."""

    @abstractmethod
    def wait(self, seconds: float | None = None) -> None:
        """Wait until all submitted work is done, and leave its failure to be reported."""

    @abstractmethod
    def close(self) -> None:
        """Finish the submitted work and accept no more."""

    def drop(self) -> bool:
        """Forget submitted work that has not begun; False where that is not possible."""
        return False

    @abstractmethod
    def mark(self) -> Mark:
        """A new mark at the end of the submitted work."""

    @abstractmethod
    def hold(self, mark: Mark) -> None:
        """Let later work wait for a mark, of whatever stream."""

    def finish(self, seconds: float | None = None) -> AclRuntimeError | None:
        """Wait until all submitted work is done; its first failure since the last call."""
        self.wait(seconds)
        if findings.strict:
            ordering.synchronised(self)
        if self._failure is None:
            return None
        with self._lock:
            failure, self._failure = self._failure, None
        return failure

    def synchronize(self, seconds: float | None = None) -> None:
        """Like `finish`, and the failure is raised."""
        failure = self.finish(seconds)
        if failure is not None:
            raise failure

    def _run(self, job: Job) -> None:
        """Carry out a job, unless an earlier one has failed and the stream stops then."""
        if self._failure is None or not self.stops_on_failure:
            job()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise AclRuntimeError(AclError.ACL_ERROR_RT_INVALID_HANDLE, "the stream was destroyed")

    def _fail(self, error: BaseException) -> None:
        logger.error("work on a stream failed", exc_info=None if isinstance(error, AclgradError) else error)
        if self._failure is None:
            code = error.code if isinstance(error, AclRuntimeError) else AclError.ACL_ERROR_RT_AICORE_EXCEPTION
            self._failure = AclRuntimeError(code, f"work on the stream failed: {type(error).__name__}: {error}")
