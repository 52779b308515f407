"""Kernels whose operands have names.

A kernel's parameters are pointers, then numbers, then compile-time constants. For each kernel there is one table of
its pointers: name, dtype, and where in the workspace it lies unless the caller gives it. Dtypes, launch and a check of
all names against the kernel's own signature come from that table; positions appear nowhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from aclgrad.core.memory import Piece
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.launch import INTERPRETING, Kernel, Number, Pointer
from aclgrad.gpu.products import LibraryProduct
from aclgrad.gpu.steps import run_steps

if TYPE_CHECKING:
    from aclgrad.gpu.hopper import Block

Given = Mapping[str, Any]
"""Tensors, addresses and None by the names of operands."""


class Operand(NamedTuple):
    """What the kernel's parameter `<name>_ptr` points to; a dtype of None stands for an operand that is left out."""

    name: str
    dtype: torch.dtype | None
    piece: Piece | None = None  # in the workspace; None if the caller gives it
    offset: int = 0  # elements into the piece

    @staticmethod
    def at(name: str, piece: Piece | None, offset: int = 0) -> Operand:
        """A piece of the workspace, if there is one."""
        return Operand(name, None if piece is None else piece.dtype, piece, offset)


class Operands:
    """The table of a kernel's pointers, in its order."""

    def __init__(self, operands: Iterable[Operand]) -> None:
        table = tuple(operands)
        self.dtypes = [operand.dtype for operand in table]
        self.parameters = [f"{operand.name}_ptr" for operand in table]
        there = [(k, operand) for k, operand in enumerate(table) if operand.dtype is not None]
        self._given = [(k, operand.name) for k, operand in there if operand.piece is None]
        self._pieces = [(k, operand.piece, operand.offset) for k, operand in there if operand.piece is not None]
        self._bytes = [(k, piece.offset + offset * piece.dtype.itemsize) for k, piece, offset in self._pieces]

    def pointers(self, given: Given, workspace: torch.Tensor | None = None) -> list[Pointer]:
        """What to launch with."""
        pointers: list[Pointer] = [None] * len(self.dtypes)
        for k, name in self._given:
            pointers[k] = given[name]
        if self._pieces:
            assert workspace is not None
            if INTERPRETING:
                for k, piece, offset in self._pieces:
                    pointers[k] = placed(piece, workspace, offset)
            else:
                base = workspace.data_ptr()
                for k, offset in self._bytes:
                    pointers[k] = base + offset
        return pointers


class NamedKernel:
    """A `Kernel` that is launched with operands by name."""

    def __init__(
        self,
        function: Any,
        grid: Sequence[int],
        device: torch.device,
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._operands = Operands(operands)
        require_names(function, self._operands.parameters, numbers, constants)
        self._kernel = Kernel(
            function, grid, device, self._operands.dtypes, tuple(numbers.values()), constants, **options
        )

    def __call__(self, given: Given, workspace: torch.Tensor | None = None) -> None:
        """Launch on the current stream."""
        self._kernel(*self._operands.pointers(given, workspace))


class StepKernel:
    """A `NamedKernel` that is launched for every step, with the number `step` behind its pointers."""

    def __init__(
        self,
        function: Any,
        grid: Sequence[int],
        device: torch.device,
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._operands = Operands(operands)
        require_names(function, [*self._operands.parameters, "step"], numbers, constants)
        dtypes = (*self._operands.dtypes, 0)
        self._kernel = Kernel(function, grid, device, dtypes, tuple(numbers.values()), constants, **options)

    def run(
        self, given: Given, workspace: torch.Tensor, steps: int, products: Sequence[Sequence[LibraryProduct]] = ((),)
    ) -> None:
        """Launch steps 0, 1, … behind their products, see `run_steps`."""
        run_steps(self._kernel, self._operands.pointers(given, workspace), steps, products)


class NamedBulkKernel:
    """A `BulkKernel` that is launched with operands by name; its matrices are the parameters `<name>_desc`."""

    def __init__(
        self,
        function: Any,
        grid: tuple[int, int, int],
        device: torch.device,
        matrices: Mapping[str, tuple[Block, Piece]],
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        **options: Any,
    ) -> None:
        from aclgrad.gpu.hopper import BulkKernel

        self._operands = Operands(operands)
        self._matrices = [piece for _, piece in matrices.values()]
        descriptors = [f"{name}_desc" for name in matrices]
        require_names(function, [*descriptors, *self._operands.parameters], numbers, constants)
        blocks = [block for block, _ in matrices.values()]
        self._kernel = BulkKernel(
            function, grid, device, blocks, self._operands.dtypes, tuple(numbers.values()), constants, **options
        )

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Launch on the current stream."""
        matrices = [piece.view(workspace) for piece in self._matrices]
        self._kernel(matrices, *self._operands.pointers(given, workspace))


def require_names(function: Any, pointers: Iterable[str], numbers: Iterable[str], constants: Iterable[str]) -> None:
    """The names are those of the function's parameters, in their order."""
    named, parameters = [*pointers, *numbers, *constants], list(inspect.signature(function.fn).parameters)
    if named != parameters:
        raise TypeError(f"{function.fn.__name__} takes {parameters}, is given {named}")


def clear(piece: Piece, workspace: torch.Tensor) -> None:
    """Fill with zero bytes."""
    workspace[piece.offset : piece.offset + piece.nbytes].zero_()
