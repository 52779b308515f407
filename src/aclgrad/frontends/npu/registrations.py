"""Kernels that torch's dispatcher has while the device is there."""

from __future__ import annotations

from typing import Any

import torch


class Registrations:
    """Kernels of ops of one library, torch's as a rule, and one for all ops of all libraries that have no other."""

    def __init__(self, library: str = "aten") -> None:
        self._library: Any = torch.library.Library(library, "IMPL")
        self._others: Any = torch.library.Library("_", "IMPL")

    def add(self, op: Any, kernel: Any, key: str, **options: Any) -> None:
        """Let a kernel serve an op, given itself or by its name."""
        self._library.impl(op, kernel, key, **options)

    def add_for_others(self, kernel: Any, key: str) -> None:
        """Let a kernel serve every op without one."""
        self._others.fallback(kernel, key)

    def undo(self) -> None:
        """Leave the ops as they were."""
        self._library._destroy()
        self._others._destroy()


def overload(name: str) -> Any:
    """Torch's op of a name like "lstm.input"."""
    packet, _, of = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), of or "default")
