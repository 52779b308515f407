"""`linear_cross_entropy_backward` on CPUs: the document's arguments for the gradient's kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.spec import Call

from ..empty import Zeros
from .gradient import Gradient, GradientOperands


class LinearCrossEntropyBackward:
    """Phase two of `linear_cross_entropy_backward`."""

    __slots__ = ("_gradient", "_names", "_unread")

    def __init__(self, call: Call) -> None:
        self._names = tuple(call.spec.params)
        self._unread = () if call["softmax"] is None else ("logits_max", "sum_exp_logits")
        metas = self._operands([call[name] for name in self._names])
        dtypes = GradientOperands(*(meta and meta.dtype for meta in metas))
        self._gradient = Gradient(call, dtypes._replace(target_mask=torch.uint8))  # bools are bytes too

    def _operands(self, values: Sequence[Any]) -> GradientOperands:
        """Those among the call's values that the kernel reads in this mode."""
        given = dict(zip(self._names, values, strict=True))
        return GradientOperands(
            **{name: given[name] for name in GradientOperands._fields if name in given and name not in self._unread}
        )

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._gradient.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every thread has a place there
        tensors = self._operands((*args, *outs))
        addresses = GradientOperands(*(tensor if tensor is None else tensor.data_ptr() for tensor in tensors))
        self._gradient.run(addresses, outs, workspace)

    def describe(self) -> str:
        """In words."""
        source = "softmax given" if self._unread else "logits computed again"
        return f"{source}, {self._gradient.describe()}"


def linear_cross_entropy_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    if call["label_smoothing"] != 0:
        raise Unsupported(f"{call.label('label_smoothing')} is {call['label_smoothing']}, expected 0")
    return Zeros() if 0 in call.dims else LinearCrossEntropyBackward(call)
