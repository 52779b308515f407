"""Element-wise launches on a GPU: a formula, the names of its operands, any layout.

A family writes the formula of one element as a Triton function and names the operands:

    @jit
    def _gradient(grad, x):
        return tl.where(x.to(tl.float32) > 0.0, grad.to(tl.float32), 0.0)

    def relu_backward(call):
        return Pointwise(call, _gradient, ("grad_output", "x"))

The formula gets elements as they are stored and computes in the type it likes; what it returns is rounded once to the
dtype of the output. Of several outputs it returns a tuple. An input that the call does not have is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..core.loops import Loops
from ..core.pointwise import PointwiseOperands
from ..core.spec import Call
from ..core.words import counted
from .launch import Number, TupleKernel, jit
from .strided import LINE, Tiles, offsets, place


@jit
def _joined(some, more):
    """Both tuples in one; Triton knows no stars in a tuple."""
    return some + more


@jit
def _apply(pointers, at, inside, FORMULA: tl.constexpr, OUTS: tl.constexpr):
    """Load, compute, store. `at` says where the elements of each operand lie; `inside` is None where all exist."""
    INPUTS: tl.constexpr = len(pointers) - OUTS
    targets = ()
    for k in tl.static_range(INPUTS, INPUTS + OUTS):
        targets = _joined(targets, (None if pointers[k] is None else pointers[k] + at[k],))
    inputs = ()
    for k in tl.static_range(INPUTS - 1, -1, -1):
        inputs = _joined((None if pointers[k] is None else tl.load(pointers[k] + at[k], inside),), inputs)
    results = FORMULA(*inputs)
    if OUTS == 1:
        results = (results,)
    for k in tl.static_range(OUTS):
        if targets[k] is not None:
            tl.store(targets[k], results[k].to(targets[k].dtype.element_ty), inside)


@jit
def _line(pointers, count, FORMULA: tl.constexpr, OUTS: tl.constexpr, LINE: tl.constexpr):
    """A line of gapless operands. Only the last line needs a mask, which would cost the others their wide accesses."""
    start = tl.program_id(0).to(tl.int64) * LINE
    lane = tl.arange(0, LINE)
    at = ()
    lines = ()
    for k in tl.static_range(len(pointers)):
        at = _joined(at, (lane,))
        lines = _joined(lines, (None if pointers[k] is None else pointers[k] + start,))
    if start + LINE <= count:
        _apply(lines, at, None, FORMULA, OUTS)
    else:
        _apply(lines, at, lane < (count - start), FORMULA, OUTS)


@jit
def _tile(
    pointers, sizes, strides, down,
    FORMULA: tl.constexpr, OUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A tile of operands of any strides."""
    rows, columns, inside = place(down, sizes, ROWS, COLUMNS, WIDE)
    at = ()
    for k in tl.static_range(len(pointers)):
        at = _joined(at, (None if pointers[k] is None else offsets(rows, columns, sizes, strides[k]),))
    _apply(pointers, at, inside, FORMULA, OUTS)


class Pointwise:
    """Phase two of an element-wise operator: `outs = formula(*inputs)` for every element.

    `formula` is a Triton function of elements. `inputs` and `outs` are names of the contract, in the formula's order;
    what is updated in place stands in both. All operands have one shape; dtypes and strides may be any.
    """

    workspace = 0

    def __init__(self, call: Call, formula: Any, inputs: Sequence[str], outs: Sequence[str] = ("out",)) -> None:
        operands = PointwiseOperands(call, inputs, outs)
        loops = Loops.over(operands.shape, *operands.strides)
        constants = {"FORMULA": formula, "OUTS": len(outs)}
        self._pick = operands.all
        numbers: tuple[Number, ...]
        if loops.flat:
            function, programs, numbers = _line, triton.cdiv(loops.count, LINE), (loops.count,)
            constants["LINE"] = LINE
            self._way = f"lines of {LINE} elements, {counted(programs, 'program')}"
        else:
            tiles = Tiles.of(loops)
            function, programs = _tile, tiles.count
            numbers = (tiles.sizes, operands.spread(tiles.strides), tiles.down)
            constants |= tiles.constants
            cut = f"{tiles.rows} × {tiles.columns} through {len(tiles.sizes)} loops"
            self._way = f"tiles of {cut}, {counted(programs, 'program')}"
        dtypes = operands.spread(operands.dtypes)
        self._kernel = TupleKernel(function, (programs,), call.device, dtypes, numbers, constants)

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        if self._pick is None:
            self._kernel(*args, *outs)
        else:
            self._kernel(*self._pick((*args, *outs)))

    def describe(self) -> str:
        """In words."""
        return self._way
