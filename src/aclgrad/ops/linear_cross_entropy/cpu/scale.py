"""CPU kernel of `scale_`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.spec import Call


class Scale:
    """Phase two of `scale_`."""

    workspace = 0

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        x, factor = args
        if float(factor) != 1.0:
            x.mul_(factor)

    def describe(self) -> str:
        """In words."""
        return "torch's own product, if the factor is not 1"


def scale_(call: Call) -> Launch:  # noqa: ARG001
    """Any float dtype, any strides."""
    return Scale()
