"""Phase two into an output with gaps, for a kernel that keeps something of its own in the output's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.backends import Launch
from ...core.meta import contiguous_strides
from ...core.spec import Call

ALIGN = 64  # bytes, of everything in a workspace


class WithoutGaps:
    """`weight_grad` in the workspace first, where it has none."""

    def __init__(self, make: Callable[[Call], Launch], call: Call) -> None:
        gradient = call.tensor("weight_grad")
        self._dense = gradient._replace(strides=contiguous_strides(gradient.shape))
        self._launch = make(Call(call.spec, {**call.values, "weight_grad": self._dense}, call.strict, call.soc))
        self._index = call.spec.out_names.index("weight_grad")
        self._own = -(-self._dense.span // ALIGN) * ALIGN

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._own + self._launch.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # the gradient is there
        gradient = outs[self._index]
        dense = workspace[: self._dense.span].view(gradient.dtype).view(self._dense.shape)
        filled = (*outs[: self._index], dense, *outs[self._index + 1 :])
        self._launch(args, filled, workspace[self._own :])
        gradient.copy_(dense)

    def describe(self) -> str:
        """In words."""
        return f"weight_grad in the workspace first; {self._launch.describe()}"


def has_gaps(call: Call) -> bool:
    """Whether there is a `weight_grad` whose memory is not its own alone."""
    gradient = call["weight_grad"]
    return gradient is not None and gradient.strides != contiguous_strides(gradient.shape)
