"""What a row about a module is: a forward and a backward pass at one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aclgrad.core.meta import dtype_name
from aclgrad.testing import Data

from .device import Device

Step = Callable[[], Sequence[Tensor]]
"""A forward and a backward pass: the loss or output, then the gradients."""


@dataclass(frozen=True)
class Training:
    """One module at one size. `steps` gives every contender's step, ours first and the peer of the bars second.

    Without a device they are for the gate, which looks at what the first two compute. A step may be a `Contender`.
    """

    module: str
    case: str
    dtype: torch.dtype
    devices: tuple[str, ...]
    make: Callable[[Data], Sequence[Tensor]]
    steps: Callable[[Sequence[Tensor], Device | None], Mapping[str, Any]]
    flops: int = 0
    bytes: int = 0

    @property
    def key(self) -> str:
        return f"{self.module}/{self.case}/{dtype_name(self.dtype)}"
