"""Kernels that torch's dispatcher has while the device is there."""

from __future__ import annotations

from typing import Any

import torch


class Registrations:
    """Kernels of torch's ops, and one for all ops of all libraries that have no other."""

    def __init__(self) -> None:
        self._aten: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch's
        self._others: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]

    def add(self, op: Any, kernel: Any, key: str) -> None:
        """Let a kernel serve an op, given itself or by its name."""
        self._aten.impl(op, kernel, key)

    def add_for_others(self, kernel: Any, key: str) -> None:
        """Let a kernel serve every op without one."""
        self._others.fallback(kernel, key)

    def undo(self) -> None:
        """Leave the ops as they were."""
        self._aten._destroy()
        self._others._destroy()


def overload(name: str) -> Any:
    """Torch's op of a name like "lstm.input"."""
    packet, _, of = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), of or "default")
