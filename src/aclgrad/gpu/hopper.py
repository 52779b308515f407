"""What kernels written in Gluon for Hopper share: how they are declared, and tensors for the bulk copy engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def jit(*unspecialised: str) -> Callable[[Callable[..., Any]], Any]:
    """A Gluon function; arguments named here are numbers whose values do not change the code."""

    def decorate(function: Callable[..., Any]) -> Any:
        return gluon.jit(function, do_not_specialize=list(unspecialised))

    return decorate


class Block:
    """How a matrix of rows `stride` elements apart is copied block by block; `block(tensor)` is one to launch with."""

    __slots__ = ("_layout", "_shape", "_strides", "block")

    def __init__(self, shape: Sequence[int], stride: int, block: Sequence[int], dtype: torch.dtype) -> None:
        self.block = list(block)
        self._shape, self._strides = list(shape), [stride, 1]
        self._layout = gl.NVMMASharedLayout.get_default_for(self.block, DTYPES[dtype])

    def __call__(self, base: Any) -> Any:
        """The matrix that begins at this tensor's first element."""
        return TensorDescriptor(base, self._shape, self._strides, self.block, self._layout)
