"""Where Triton keeps compiled kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import triton

from ..core import cache


@contextmanager
def located() -> Iterator[None]:
    """Let Triton keep files in the folder for all of ours, unless its user has named another."""
    folder = cache.chosen("triton")
    if folder is None or "TRITON_CACHE_DIR" in os.environ:
        yield
        return
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(folder)
        yield
