"""Gluon as the installed Triton speaks it.

Gluon is Triton's explicit sibling: shared memory, barriers and the roles of warps are the kernel's own business. It is
young, and versions of Triton change its names. Kernels take those that changed from here. Where the installed Triton is
not a known one (`launch.KNOWN`), this module must not be imported: plain Triton kernels do the work.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, tma

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # since 3.7
"""Wait for all threads of the program, or of a role."""

async_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared  # since 3.8
"""Begin to fill shared memory, each thread with what it points to."""

bulk_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # since 3.8
"""Have the bulk copy engine fill a block of shared memory and signal a barrier."""

bulk_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global  # since 3.8
"""Have the bulk copy engine write a block of shared memory."""
