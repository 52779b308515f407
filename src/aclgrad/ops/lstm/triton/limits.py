"""What a device has for kernels that stay resident."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aclgrad.gpu.devices import is_hopper, multiprocessors, runs_gluon, shared_memory

RESERVED = 7 * 1024
"""Bytes of shared memory that cuts leave to the compiler, unless they know all that is in it."""


@dataclass(frozen=True)
class Limits:
    """Programs that are resident at once, bytes of shared memory of each, and whether warpgroups can multiply."""

    programs: int
    all_shared: int
    warpgroups: bool

    @property
    def shared(self) -> int:
        """Bytes of shared memory that a cut may fill."""
        return self.all_shared - RESERVED

    @staticmethod
    def of(device: torch.device) -> Limits | None:
        """Of a device; None if it has no resident kernels, which are written in Gluon."""
        if not runs_gluon(device):
            return None
        return Limits(multiprocessors(device), shared_memory(device), is_hopper(device))
