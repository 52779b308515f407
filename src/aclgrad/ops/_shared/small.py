"""Small calls of modules: torch's own operations serve them, which cost the host less than a kernel of ours.

They compute the same function as exactly, and each module says up to how much work they are the faster ones. What torch
refuses goes the module's ordinary way, whose checks say what is wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.dispatch import is_watched

enabled = True
"""Tests of the kernels switch it off: their tensors are small."""

WIDE = (torch.float32, torch.float64)
"""Dtypes that torch computes in; half types it rounds several times on the way, on a CPU."""

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch raises for arguments that do not fit."""


def is_served(input: Tensor, *, by_gpu: bool = False) -> bool:
    """Whether torch may serve a call with this input: nobody traces it, and it is in a CPU's memory, or a GPU's."""
    return enabled and type(input) is Tensor and (input.is_cpu or (by_gpu and input.is_cuda)) and not is_watched()


def is_exact(tensor: Tensor) -> bool:
    """Whether torch computes in the tensor's dtype, and on a CPU it is a wide one."""
    return (tensor.dtype in WIDE or tensor.is_cuda) and not torch.is_autocast_enabled(tensor.device.type)
