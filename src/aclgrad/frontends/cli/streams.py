"""Where the command line writes: terminals of any encoding, readers that leave early, disks that are full."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def polite() -> Iterator[None]:
    """Leave without a traceback when the output cannot be written; show ? for what an encoding does not know."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None: closed by whoever started us
            stream.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        sys.exit(1)
    except OSError as error:
        _silence()
        sys.exit(f"aclgrad: {error}")


def _silence() -> None:
    """Send what was not written nowhere, or the interpreter would try once more when it ends, and complain."""
    with suppress(OSError, AttributeError), open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
