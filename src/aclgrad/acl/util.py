"""acl.util: between Python objects and addresses."""

from ..frontends.acl.util import (
    bytes_to_ptr,
    numpy_contiguous_to_ptr,
    numpy_to_ptr,
    ptr_to_bytes,
    ptr_to_numpy,
    start_thread,
    stop_thread,
)

__all__ = [
    "bytes_to_ptr",
    "numpy_contiguous_to_ptr",
    "numpy_to_ptr",
    "ptr_to_bytes",
    "ptr_to_numpy",
    "start_thread",
    "stop_thread",
]
