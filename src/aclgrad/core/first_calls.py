"""What a first call has to compile: counted, and told on a terminal if it takes long."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer

PATIENCE = 1.0  # seconds of compiling before a person wonders
PAUSE = 0.5  # seconds after which the next kernel is another call's


class _Line:
    """One line on a terminal, there while something is compiled and gone afterwards."""

    def __init__(self) -> None:
        self.hidden = 0
        self._began = self._ended = 0.0

    def shows(self) -> bool:
        """Whether there is somebody to read it: on a terminal, and of several processes beside the first one."""
        told = self.hidden or os.environ.get("LOCAL_RANK", "0") != "0"
        return not told and sys.stderr is not None and sys.stderr.isatty()

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Show the line after a while: at once where one kernel follows another."""
        now = time.monotonic()
        if now - self._ended > PAUSE:
            self._began = now
        with ExitStack() as shown:
            timer = Timer(max(PATIENCE - (now - self._began), 0.0), lambda: shown.enter_context(_status(name)))
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()
                self._ended = time.monotonic()


def _status(name: str) -> ExitStack:
    from rich.console import Console

    stack = ExitStack()
    stack.enter_context(
        Console(stderr=True).status(f"aclgrad compiles for this machine, once: {name}", spinner="line", speed=0.5)
    )
    return stack


_line = _Line()
compiled: list[str] = []
"""The names of the kernels that this process compiled, because no cache had them."""


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Around whatever may take long because a kernel is compiled."""
    if not _line.shows():
        yield
        return
    with _line.around(name):
        yield


@contextmanager
def untold() -> Iterator[None]:
    """Without the line, for those who show their own."""
    _line.hidden += 1
    try:
        yield
    finally:
        _line.hidden -= 1
