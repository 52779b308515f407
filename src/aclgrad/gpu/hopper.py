"""What kernels written in Gluon for Hopper share: how they are declared, tensors for the bulk copy engine, launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.jit import MockTensor

from .launch import Grid, Number, Pointer, StandIn, addresses_of, compiled, stand_ins

DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def jit(*unspecialised: str) -> Callable[[Callable[..., Any]], Any]:
    """A Gluon function; arguments named here are numbers whose values do not change the code."""

    def decorate(function: Callable[..., Any]) -> Any:
        return gluon.jit(function, do_not_specialize=list(unspecialised))

    return decorate


class Block:
    """How a matrix of rows `stride` elements apart is copied block by block; `block(tensor)` is one to launch with."""

    __slots__ = ("_layout", "_shape", "_strides", "block", "stand_in")

    def __init__(self, shape: Sequence[int], stride: int, block: Sequence[int], dtype: torch.dtype) -> None:
        self.block = list(block)
        self._shape, self._strides = list(shape), [stride, 1]
        self._layout = gl.NVMMASharedLayout.get_default_for(self.block, DTYPES[dtype])
        self.stand_in = self(MockTensor(dtype))

    def __call__(self, base: Any) -> Any:
        """The matrix that begins at this tensor's first element."""
        return TensorDescriptor(base, self._shape, self._strides, self.block, self._layout)


class BulkKernel:
    """A `Kernel` whose first parameters are matrices for the bulk copy engine: `kernel(matrices, *pointers)`.

    All of them lie at multiples of 16 bytes; there is other code for pointers that do not.
    """

    __slots__ = (
        "_blocks", "_constants", "_device", "_dtypes", "_function", "_grid", "_misaligned", "_numbers", "_options",
        "_run",
    )  # fmt: skip

    def __init__(
        self,
        function: Any,
        grid: Grid,
        device: torch.device,
        blocks: Sequence[Block],
        dtypes: Sequence[torch.dtype | None],
        numbers: Sequence[Number],
        constants: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._function, self._grid, self._device = function, grid, device
        self._blocks, self._dtypes = tuple(blocks), tuple(dtypes)
        self._numbers, self._constants, self._options = tuple(numbers), dict(constants), options
        self._misaligned: dict[tuple[StandIn, ...], Callable[..., None]] = {}
        self._run = self._compiled(self._dtypes)

    def __call__(self, matrices: Sequence[torch.Tensor], *pointers: Pointer) -> None:
        """Launch on the current stream."""
        run = self._run
        addresses, aligned = addresses_of(pointers)
        if not aligned:
            lying = stand_ins(self._dtypes, addresses)
            run = self._misaligned.get(lying) or self._misaligned.setdefault(lying, self._compiled(lying))
        described = [block(matrix) for block, matrix in zip(self._blocks, matrices, strict=True)]
        run(*described, *pointers, *self._numbers, *self._constants.values())

    def _compiled(self, pointers: Sequence[Any]) -> Callable[..., None]:
        """The launcher for pointers that stand for themselves; see `stand_ins`."""
        arguments = (*(block.stand_in for block in self._blocks), *pointers, *self._numbers)
        kernel = compiled(self._function, arguments, self._grid, self._device, **self._constants, **self._options)
        run: Callable[..., None] = kernel[self._grid]
        return run
