"""What a GPU has and runs, and launches that make theirs the current one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import triton

from ..core.backends import Launch
from ..core.devices import description
from .driver import library
from .launch import INTERPRETING, KNOWN
from .tape import Taped


class OnDevice:
    """A launch that makes its device the current one, whichever was; on tape where calls can be written down."""

    __slots__ = ("_compute", "_index", "_launch", "workspace")

    def __init__(self, launch: Launch, device: torch.device) -> None:
        self._launch = launch
        self._index = -1 if device.index is None else device.index
        on_tape = device.type == "cuda" and description(device) is None and library() is not None
        self._compute = Taped(launch, self._index) if on_tape else launch
        self.workspace = launch.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute; see `Launch`."""
        if INTERPRETING or torch.cuda.current_device() == self._index:
            self._compute(args, outs, workspace)
        else:
            with torch.cuda.device(self._index):
                self._compute(args, outs, workspace)

    def describe(self) -> str:
        """See `Launch`."""
        return self._launch.describe()


@cache
def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors the device has; a few where kernels are interpreted."""
    if device.type != "cuda":
        return 4
    known = description(device)
    return known.multiprocessors if known else torch.cuda.get_device_properties(device).multi_processor_count


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    known = description(device)
    if known is not None:
        return known.shared_memory
    return int(triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"])


def _capability(device: torch.device) -> tuple[int, int]:
    known = description(device)
    return known.capability if known else torch.cuda.get_device_capability(device)


@cache
def runs_gluon(device: torch.device) -> bool:
    """Whether kernels in Gluon run on the device, those at least that are made for any GPU since Ampere."""
    if INTERPRETING or not KNOWN or device.type != "cuda" or torch.version.hip is not None:
        return False
    return _capability(device) >= (8, 0)


@cache
def is_hopper(device: torch.device) -> bool:
    """Whether kernels in Gluon that are made for Hopper run on the device."""
    return runs_gluon(device) and _capability(device) == (9, 0)


@cache
def overlaps(device: torch.device) -> bool:
    """Whether a launch may begin before the one that it waits for has ended (`launch_pdl`, `gdc_wait`)."""
    return device.type == "cuda" and torch.version.hip is None and _capability(device) >= (9, 0)
