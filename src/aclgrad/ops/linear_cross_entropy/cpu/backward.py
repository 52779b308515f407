"""`linear_cross_entropy_backward` on CPUs: the document's arguments for the gradient's kernel.

Numbers of tokens that are not of the dtype of sums, as float32 ones beside float64 matrices, are copied to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from aclgrad.core.backends import Launch
from aclgrad.core.errors import Unsupported
from aclgrad.core.memory import Scratch
from aclgrad.core.spec import Call
from aclgrad.cpu.copies import Copies
from aclgrad.cpu.gemm import gemm_for

from ..empty import Zeros
from ..spec import STATISTICS
from .gradient import Gradient, GradientOperands

OF_TOKENS = ("grad", *STATISTICS)


class LinearCrossEntropyBackward:
    """Phase two of `linear_cross_entropy_backward`."""

    __slots__ = ("_copies", "_given", "_gradient", "_own", "_positions", "_vectors")

    def __init__(self, call: Call) -> None:
        names, sums = list(call.spec.params), gemm_for(call["input"].dtype).sums
        self._given = call["softmax"] is not None
        read = {name: call[name] for name in names if not (self._given and name in STATISTICS)}
        vectors = {name: read[name] for name in OF_TOKENS if name in read}
        scratch = Scratch()
        self._copies = Copies(list(vectors.values()), 0, scratch, sums)
        dense = {
            name: meta._replace(strides=strides)
            for (name, meta), strides in zip(vectors.items(), self._copies.strides, strict=True)
        }
        self._own = scratch.size
        self._gradient = Gradient(Call(call.spec, {**read, **dense}, call.strict, call.soc))
        self._vectors = [names.index(name) for name in vectors]
        self._positions = [
            names.index(name) if read.get(name) is not None else None for name in GradientOperands._fields
        ]

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory."""
        return self._own + self._gradient.workspace

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Compute into the outputs."""
        assert workspace is not None  # every thread has a place there
        addresses = [None if k is None else args[k].data_ptr() for k in self._positions]
        if self._own:
            copied = self._copies.bring([args[k] for k in self._vectors], workspace)
            for k, address in zip(self._vectors, copied, strict=True):
                addresses[self._positions.index(k)] = address
            workspace = workspace[self._own :]
        self._gradient.run(addresses, outs, workspace)

    def describe(self) -> str:
        """In words."""
        source = "softmax given" if self._given else "logits computed again"
        return f"{source}, {self._gradient.describe()}"


def linear_cross_entropy_backward(call: Call) -> Launch:
    """Phase one; the dtypes are the contract's."""
    if call["label_smoothing"] != 0:
        raise Unsupported(f"{call.label('label_smoothing')} is {call['label_smoothing']}, expected 0")
    return Zeros() if 0 in call.dims else LinearCrossEntropyBackward(call)
