"""Kernels whose operands have names.

A kernel's parameters are pointers, then numbers, then compile-time constants. For each kernel there is one table of
its pointers: name, dtype, and where in the workspace it lies unless the caller gives it. Dtypes, launch and a check of
all names against the kernel's own signature come from that table; positions appear nowhere.

A kernel that is launched with an operator's own arguments and outputs (`CallKernel`) looks their names up in phase one;
one that is launched with views (`NamedKernel`) is given them by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from ..core.memory import Piece
from ..core.spec import Call
from .addresses import placed
from .launch import INTERPRETING, Kernel, Number, Pointer, any_like, few
from .products import LibraryProduct
from .steps import run_steps

if TYPE_CHECKING:
    from .hopper import Block

Given = Mapping[str, Any]
"""Tensors, addresses and None by the names of operands."""

Unknown: TypeAlias = "bool | Container[str]"
"""The names of numbers of which the compiler learns nothing, so that one kernel serves many calls; True for all."""


class Operand(NamedTuple):
    """What the kernel's parameter `<name>_ptr` points to; a dtype of None stands for an operand that is left out."""

    name: str
    dtype: torch.dtype | None
    piece: Piece | None = None  # in the workspace; None if the caller gives it
    offset: int = 0  # elements into the piece
    argument: str = ""  # the caller's name for it, if that is another

    @staticmethod
    def of(call: Call, name: str, argument: str = "") -> Operand:
        """An argument or output of a call; left out where that is."""
        meta = call[argument or name]
        return Operand(name, None if meta is None else meta.dtype, argument=argument)

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
        self._given = [(k, operand.argument or operand.name) for k, operand in there if operand.piece is None]
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

    def of_call(self, call: Call) -> Callable[[Sequence[Any], Sequence[Any], torch.Tensor | None], Sequence[Pointer]]:
        """What to launch with, as a function of a launch's arguments, outputs and workspace.

        It picks from one sequence: arguments and outputs in the contract's order, None, pieces of the workspace.
        """
        names = list(call.spec.params)
        order = [len(names)] * len(self.dtypes)
        for k, name in self._given:
            order[k] = names.index(name)
        for index, (k, _, _) in enumerate(self._pieces):
            order[k] = len(names) + 1 + index
        pick: Callable[[tuple[Any, ...]], tuple[Pointer, ...]] = itemgetter(*order)
        if len(order) == 1:  # of one, it would give no tuple
            pick = itemgetter(slice(order[0], order[0] + 1))
        pieces, offsets = self._pieces, [offset for _, offset in self._bytes]

        def from_call(args: Sequence[Any], outs: Sequence[Any], _: torch.Tensor | None) -> Sequence[Pointer]:
            return pick((*args, *outs, None))

        def from_workspace(
            args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None
        ) -> Sequence[Pointer]:
            assert workspace is not None
            if INTERPRETING:
                return pick((*args, *outs, None, *[placed(piece, workspace, offset) for _, piece, offset in pieces]))
            base = workspace.data_ptr()
            return pick((*args, *outs, None, *[base + offset for offset in offsets]))

        return from_workspace if pieces else from_call


class _OperandKernel:
    """A `Kernel` with a table of operands, compiled for any numbers that are `unknown`."""

    _behind: tuple[str, ...] = ()  # numbers that a launch gives behind the pointers

    def __init__(
        self,
        function: Any,
        grid: Sequence[int],
        device: torch.device,
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        unknown: Unknown = False,
        **options: Any,
    ) -> None:
        self._operands = Operands(operands)
        require_names(function, [*self._operands.parameters, *self._behind], numbers, constants)
        dtypes = (*self._operands.dtypes, *[0] * len(self._behind))
        self._kernel = Kernel(
            function, grid, device, dtypes, tuple(numbers.values()), constants,
            compiled_for=_compiled_for(numbers, unknown), **options,
        )  # fmt: skip

    def describe(self) -> str:
        """See `Kernel`."""
        return self._kernel.describe()


class NamedKernel(_OperandKernel):
    """A `Kernel` that is launched with operands by name."""

    def __call__(self, given: Given, workspace: torch.Tensor | None = None) -> None:
        """Launch on the current stream."""
        self._kernel(*self._operands.pointers(given, workspace))


class CallKernel(_OperandKernel):
    """A `Kernel` that is launched with an operator's own arguments and outputs, and pieces of its workspace.

    For a call of `few` elements it is compiled for any numbers but those that are `known`.
    """

    def __init__(
        self,
        call: Call,
        function: Any,
        grid: Sequence[int],
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        known: Iterable[str] = (),
        **options: Any,
    ) -> None:
        unknown = is_small(call) and {*numbers}.difference(known)
        super().__init__(function, grid, call.device, operands, numbers, constants, unknown, **options)
        self._empty = 0 in grid
        self._pointers = self._operands.of_call(call)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:
        """Launch on the current stream; arguments and outputs stand in the contract's order."""
        if self._empty:  # then there may be no workspace, either
            return
        self._kernel(*self._pointers(args, outs, workspace))


class StepKernel(_OperandKernel):
    """A `NamedKernel` that is launched for every step, with the number `step` behind its pointers."""

    _behind = ("step",)

    def run(
        self, given: Given, workspace: torch.Tensor, steps: int, products: Sequence[Sequence[LibraryProduct]] = ((),)
    ) -> None:
        """Launch steps 0, 1, … behind their products, see `run_steps`."""
        run_steps(self._kernel, self._operands.pointers(given, workspace), steps, products)


class RowsKernel(_OperandKernel):
    """A `NamedKernel` that takes a call's number of `rows` behind its pointers: its plan serves other numbers, too."""

    _behind = ("rows",)

    def __call__(self, given: Given, workspace: torch.Tensor, rows: int) -> None:
        """Launch on the current stream."""
        self._kernel.with_rows(rows, *self._operands.pointers(given, workspace))


class NamedBulkKernel:
    """A `BulkKernel` that is launched with operands by name; its matrices are the parameters `<name>_desc`.

    A matrix is a block and where in the workspace it lies, or a block alone if the caller gives it.
    """

    def __init__(
        self,
        function: Any,
        grid: tuple[int, int, int],
        device: torch.device,
        matrices: Mapping[str, Block | tuple[Block, Piece]],
        operands: Iterable[Operand],
        numbers: Mapping[str, Number],
        constants: Mapping[str, Any],
        unknown: Unknown = False,
        **options: Any,
    ) -> None:
        from .hopper import BulkKernel

        self._operands = Operands(operands)
        placed_at = {name: matrix if isinstance(matrix, tuple) else (matrix, None) for name, matrix in matrices.items()}
        self._matrices = [(name, piece) for name, (_, piece) in placed_at.items()]
        descriptors = [f"{name}_desc" for name in matrices]
        require_names(function, [*descriptors, *self._operands.parameters], numbers, constants)
        blocks = [block for block, _ in placed_at.values()]
        self._kernel = BulkKernel(
            function, grid, device, blocks, self._operands.dtypes, tuple(numbers.values()), constants,
            compiled_for=_compiled_for(numbers, unknown), **options,
        )  # fmt: skip

    def __call__(self, given: Given, workspace: torch.Tensor | None = None) -> None:
        """Launch on the current stream."""
        matrices = [
            given[name] if piece is None or workspace is None else piece.view(workspace)
            for name, piece in self._matrices
        ]
        self._kernel(matrices, *self._operands.pointers(given, workspace))


def require_names(function: Any, pointers: Iterable[str], numbers: Iterable[str], constants: Iterable[str]) -> None:
    """The names are those of the function's parameters, in their order."""
    named, parameters = [*pointers, *numbers, *constants], list(inspect.signature(function.fn).parameters)
    if named != parameters:
        raise TypeError(f"{function.fn.__name__} takes {parameters}, is given {named}")


def vectors(call: Call, *names: str, left_out: Iterable[str] = ()) -> tuple[list[Operand], dict[str, int]]:
    """The vectors of a call with these names, and their strides as the numbers `<name>_stride`.

    What the call does not have, or is `left_out`, is no operand and has a stride of 0.
    """
    metas = {name: None if name in left_out else call[name] for name in names}
    operands = [Operand(name, None if meta is None else meta.dtype) for name, meta in metas.items()]
    return operands, {f"{name}_stride": 0 if meta is None else meta.strides[0] for name, meta in metas.items()}


def clear(piece: Piece, workspace: torch.Tensor) -> None:
    """Fill with zero bytes."""
    workspace[piece.offset : piece.offset + piece.nbytes].zero_()


def _compiled_for(numbers: Mapping[str, Number], unknown: Unknown) -> tuple[Number, ...]:
    """The numbers that a kernel is compiled for where some of them are `unknown`."""
    names: Container[str] = (numbers if unknown else ()) if isinstance(unknown, bool) else unknown
    return tuple([any_like(number) if name in names else number for name, number in numbers.items()])


def is_small(call: Call) -> bool:
    """Whether all tensors of a call have `few` elements."""
    return few(max((meta.numel for _, meta in call.metas(*call.spec.params)), default=0))
