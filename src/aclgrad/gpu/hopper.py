"""What kernels written in Gluon for Hopper share: how they are declared, tensors for the bulk copy engine, launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.runtime.jit import MockTensor

from .compilation import Grid
from .launch import Number, Pointer, Specialised, StandIn, addresses_of, recording

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


class BulkKernel(Specialised):
    """A kernel whose first parameters are matrices for the bulk copy engine: `kernel(matrices, *pointers)`.

    The matrices lie at multiples of 16 bytes. With `any_alignment` the function reads and writes its pointers element
    by element, so that it is the same wherever they lead.
    """

    __slots__ = ("_any_alignment", "_blocks")

    def __init__(
        self,
        function: Any,
        grid: Grid,
        device: torch.device,
        blocks: Sequence[Block],
        dtypes: Sequence[torch.dtype | None],
        numbers: Sequence[Number],
        constants: Mapping[str, Any],
        *,
        any_alignment: bool = False,
        **options: Any,
    ) -> None:
        self._blocks, self._any_alignment = tuple(blocks), any_alignment
        super().__init__(function, grid, device, dtypes, numbers, constants, **options)

    def __call__(self, matrices: Sequence[torch.Tensor], *pointers: Pointer) -> None:
        """Launch on the current stream."""
        run = self._run
        described = [block(matrix) for block, matrix in zip(self._blocks, matrices, strict=True)]
        recorder = recording.recorder
        if recorder is not None or not self._any_alignment:
            addresses, aligned = addresses_of(pointers)
            if recorder is not None:
                code_for = [0] * len(addresses) if self._any_alignment else addresses
                recorder.launch(self._loaded_for(code_for, [*described, *addresses]))
                return
            if not aligned:
                run = self._for_addresses(addresses)
        assert run is not None  # no grid of these is empty
        run(*described, *pointers, *self._numbers, *self._constants.values())

    def _specialised(self, pointers: Sequence[StandIn]) -> Callable[..., None]:
        kernel = self._compiled(*(block.stand_in for block in self._blocks), *pointers)
        self._loaded[tuple(pointers)] = kernel
        run: Callable[..., None] = kernel[self._grid]
        return run
