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

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..core.loops import Loops, Strides
from ..core.pointwise import PointwiseOperands
from ..core.spec import Call
from ..core.words import counted
from .launch import Aligned, Dtype, Kernel, Number, StandIn, any_like, few, jit
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
        self._pick = operands.all
        self._kernel, self._way = _planned(
            formula, len(outs), operands.shape, operands.strides, operands.spread(operands.dtypes), operands.spread,
            call.device,
        )  # fmt: skip

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute; see `Launch`."""
        if self._pick is None:
            self._kernel(*args, *outs)
        else:
            self._kernel(*self._pick((*args, *outs)))

    def describe(self) -> str:
        """In words."""
        return self._way


class TupleKernel(Kernel):
    """A `Kernel` whose function takes its pointers as one tuple, so that there may be any number of them."""

    __slots__ = ()

    def _specialised(self, pointers: Sequence[StandIn]) -> Callable[..., None] | None:
        run = super()._specialised(pointers)
        return None if run is None else lambda *addresses: run(addresses)

    def _known(self, pointers: Sequence[StandIn]) -> Sequence[StandIn]:
        return [Aligned(each) if isinstance(each, torch.dtype) else each for each in pointers]

    def _arguments(self, pointers: Sequence[Any]) -> Sequence[Any]:
        return (tuple(pointers),)


def _planned(
    formula: Any, outs: int, shape: Sequence[int], strides: Sequence[Strides], dtypes: Sequence[Dtype],
    spread: Callable[[Sequence[Any]], tuple[Any, ...]], device: torch.device,
) -> tuple[TupleKernel, str]:  # fmt: skip
    """The kernel of a formula over operands of these strides, and how it goes over them in words."""
    loops = Loops.over(shape, *strides)
    constants = {"FORMULA": formula, "OUTS": outs}
    numbers: tuple[Number, ...]
    if loops.flat:
        function, programs, numbers = _line, triton.cdiv(loops.count, LINE), (loops.count,)
        compiled_for = tuple(map(any_like, numbers))  # no access is wider for the number of elements
        constants["LINE"] = LINE
        way = f"lines of {LINE} elements, {counted(programs, 'program')}"
    else:
        tiles = Tiles.of(loops)
        function, programs = _tile, tiles.count
        numbers = (tiles.sizes, spread(tiles.strides), tiles.down)
        compiled_for = tuple(map(any_like, numbers)) if few(loops.count) else numbers
        constants |= tiles.constants
        cut = f"{tiles.rows} × {tiles.columns} through {len(tiles.sizes)} loops"
        way = f"tiles of {cut}, {counted(programs, 'program')}"
    return TupleKernel(function, (programs,), device, dtypes, numbers, constants, compiled_for), way


@jit
def _same(x):
    return x


def copying(target: torch.Tensor, source: torch.Tensor) -> TupleKernel:
    """A kernel of (source, target) that copies between tensors like these, rounded once if the dtypes differ."""
    strides, dtypes = (source.stride(), target.stride()), (source.dtype, target.dtype)
    kernel, _ = _planned(_same, 1, target.shape, strides, dtypes, tuple, target.device)
    return kernel


def in_wide_elements(target: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two with elements of 4 or 8 bytes, where a copy can be made of such: rows of 2 bytes each take long."""
    pair = target, source
    if target.dtype == source.dtype and target.dim() and all(t.stride(-1) == 1 for t in pair):
        for dtype in (torch.int64, torch.int32):
            if dtype.itemsize > target.element_size() and all(_divides(t, dtype.itemsize) for t in pair):
                return target.view(dtype), source.view(dtype)
    return pair


def _divides(tensor: torch.Tensor, size: int) -> bool:
    """Whether a tensor, gapless in its last dimension, consists of whole units of so many bytes."""
    places = tensor.storage_offset(), tensor.shape[-1], *tensor.stride()[:-1]
    return tensor.data_ptr() % size == 0 and all(place * tensor.element_size() % size == 0 for place in places)


@jit
def _fill(target_ptr, value, count, LINE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * LINE + tl.arange(0, LINE)
    tl.store(target_ptr + at, tl.full((LINE,), value, target_ptr.dtype.element_ty), at < count)


def filling(target: torch.Tensor, value: float) -> Kernel:
    """A kernel of a gapless tensor like this that writes the number everywhere."""
    count = target.numel()
    return Kernel(_fill, (triton.cdiv(count, LINE),), target.device, (target.dtype,), (value, count), {"LINE": LINE})
