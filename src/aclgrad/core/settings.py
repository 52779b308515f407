"""Environment variables that are looked at in every call, because they may be set at any time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def setting(name: str) -> Callable[[], str | None]:
    """What reads a variable; None if it is not set.

    `os.environ` encodes the name anew each time, and raises and catches an error for a variable that is not set, which
    takes as long as half a kernel. What it keeps is asked instead, unless another stands in its place by then.
    """
    environment: Any = os.environ
    try:
        key, kept, decode = environment.encodekey(name), environment._data, environment.decodevalue
    except AttributeError:  # not CPython's
        return lambda: os.environ.get(name)

    def read() -> str | None:
        if os.environ is not environment:
            return os.environ.get(name)
        value = kept.get(key)
        return None if value is None else decode(value)

    return read
