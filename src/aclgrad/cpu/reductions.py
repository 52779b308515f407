"""Reductions of a row as vectors: LLVM would unroll such short loops into scalars before it looks for vectors.

They are in one order on every machine: `LANES` elements side by side, whose halves are then combined until one is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .elements import ELEMENTS, I32, I64

LANES = 32

Combine = Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]


def _larger(builder: ir.IRBuilder, value: ir.Value, top: ir.Value) -> ir.Value:
    wins = builder.or_(builder.fcmp_ordered(">", value, top), builder.fcmp_unordered("uno", value, value))
    return builder.select(wins, value, top)


def _sum(builder: ir.IRBuilder, value: ir.Value, total: ir.Value) -> ir.Value:
    return builder.fadd(total, value)


def _lanes_at(builder: ir.IRBuilder, pointer: Any, address: ir.Value, index: ir.Value) -> ir.Value:
    """The elements from `index` on, of a dtype that kernels compute in."""
    element = ELEMENTS[pointer.dtype].memory
    first = builder.gep(builder.bitcast(address, element.as_pointer()), [index])
    vectors = builder.bitcast(first, ir.VectorType(element, LANES).as_pointer())
    return builder.load(vectors, align=pointer.dtype.itemsize)


def _one_of(builder: ir.IRBuilder, vector: ir.Value, combine: Combine) -> ir.Value:
    """What the lanes of a vector come to."""
    half = vector.type.count // 2
    while half:
        blank = ir.Constant(vector.type, ir.Undefined)
        lower, upper = (
            builder.shuffle_vector(
                vector, blank, ir.Constant(ir.VectorType(I32, half), list(range(start, start + half)))
            )
            for start in (0, half)
        )
        vector, half = combine(builder, upper, lower), half // 2
    return builder.extract_element(vector, I32(0))


@intrinsic
def larger(typing: Any, value: Any, top: Any) -> Any:
    """The larger one of two numbers of one type, NaN if either is."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _larger(builder, *args)

    return value(value, value), emit


@intrinsic
def largest(typing: Any, values: Any, count: Any) -> Any:
    """The largest of whole lanes of values, at least `LANES`; NaN if any is."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        address, stop = args
        top = cgutils.alloca_once_value(builder, _lanes_at(builder, values, address, I64(0)))
        with cgutils.for_range_slice(builder, I64(LANES), stop, I64(LANES), I64) as (index, _):
            found = _lanes_at(builder, values, address, index)
            builder.store(_larger(builder, found, builder.load(top)), top)
        return _one_of(builder, builder.load(top), _larger)

    return ELEMENTS[values.dtype].value(values, types.int64), emit


@intrinsic
def total(typing: Any, lanes: Any) -> Any:
    """The sum of `LANES` numbers."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _one_of(builder, _lanes_at(builder, lanes, args[0], I64(0)), _sum)

    return ELEMENTS[lanes.dtype].value(lanes), emit
