"""GPUs that plans can be made for without having one: what a plan asks of a device, written down.

A described GPU is a CUDA device with an index that no machine has. Kernels planned for it are not compiled, and cannot
be launched.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Gpu(NamedTuple):
    """What plans depend on."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int  # bytes that a program may have


GPUS = {
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 232_448),
    "h100": Gpu("NVIDIA H100 SXM", (9, 0), 132, 232_448),
    "a100": Gpu("NVIDIA A100", (8, 0), 108, 166_912),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 101_376),
    "t4": Gpu("NVIDIA T4", (7, 5), 40, 65_536),
}
"""By the names that a command line takes."""

_FIRST = 100  # index of the first one; torch has room up to 127
_BY_DEVICE = {torch.device("cuda", _FIRST + k): gpu for k, gpu in enumerate(GPUS.values())}


def described(name: str) -> torch.device:
    """The device that stands for one of `GPUS`.

    >>> description(described("h200")).multiprocessors
    132
    """
    return torch.device("cuda", _FIRST + list(GPUS).index(name))


def description(device: torch.device) -> Gpu | None:
    """What is known of a described GPU; None of a real device."""
    return _BY_DEVICE.get(device)
