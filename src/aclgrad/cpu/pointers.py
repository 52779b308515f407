"""Tuples of pointers, one for each operand of a kernel: moved, read and written together.

An operand that is absent is None in the tuple, and stays None.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .elements import ELEMENTS, I64
from .lanes import Pointer, emit_load, emit_store, move, stored_as


@intrinsic
def strides_of(typing: Any, pointers: Any, table: Any) -> Any:
    """The strides of all pointers, read from a table: whoever loops need not read them again and again."""
    result = types.UniTuple(types.int64, len(pointers.types))

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        values = [emit_load(context, builder, table, args[1], I64(k)) for k in range(len(pointers.types))]
        return context.make_tuple(builder, result, values)

    return result(pointers, table), emit


@intrinsic
def moved(typing: Any, pointers: Any, strides: Any, count: Any) -> Any:
    """Each pointer `count` of its strides further on; None stays None.

    The strides are those of a table or a tuple, or one number for all.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        values = []
        for k, pointer in enumerate(pointers.types):
            if pointer == types.none:
                values.append(context.get_dummy_value())
                continue
            if isinstance(strides, Pointer):
                stride = emit_load(context, builder, strides, args[1], I64(k))
            elif isinstance(strides, types.Integer):
                stride = context.cast(builder, args[1], strides, types.int64)
            else:
                stride = builder.extract_value(args[1], k)
            distance = builder.mul(stride, context.cast(builder, args[2], count, types.int64))
            values.append(move(builder, pointer, builder.extract_value(args[0], k), distance))
        return context.make_tuple(builder, pointers, values)

    return pointers(pointers, strides, count), emit


@intrinsic(prefer_literal=True)
def standing(typing: Any, pointers: Any, constants: Any, targets: Any) -> Any:
    """The pointers, the last `constants` of the sources as ones to a single element that serves all."""
    last = len(pointers.types) - targets.literal_value
    result = types.Tuple(
        [
            Pointer(pointer.dtype, pointer.scope, 0) if last - constants.literal_value <= k < last else pointer
            for k, pointer in enumerate(pointers.types)
        ]
    )

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        values = [builder.extract_value(args[0], k) for k in range(len(result.types))]
        return context.make_tuple(builder, result, values)

    return result(pointers, constants, targets), emit


@intrinsic(prefer_literal=True)
def fetch(typing: Any, line: Any, index: Any, targets: Any) -> Any:
    """The elements at `index` of all pointers but the last `targets`; None stays None."""
    sources = line.types[: -targets.literal_value]
    result = types.Tuple([ELEMENTS[p.dtype].value if p != types.none else types.none for p in sources])

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        position = context.cast(builder, args[1], index, types.int64)
        values = [
            context.get_dummy_value()
            if pointer == types.none
            else emit_load(context, builder, pointer, builder.extract_value(args[0], k), position)
            for k, pointer in enumerate(sources)
        ]
        return context.make_tuple(builder, result, values)

    return result(line, index, targets), emit


@intrinsic(prefer_literal=True)
def put(typing: Any, line: Any, index: Any, targets: Any, result: Any) -> Any:
    """Write a number at `index` of the last pointer, or the numbers of a tuple at `index` of the last `targets`.

    Nothing is written where the pointer is None.
    """
    first = len(line.types) - targets.literal_value
    numbers = tuple(result.types) if isinstance(result, types.BaseTuple) else (result,)

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        position = context.cast(builder, args[1], index, types.int64)
        for k, (target, number) in enumerate(zip(line.types[first:], numbers, strict=True)):
            if target == types.none:
                continue
            value = builder.extract_value(args[3], k) if isinstance(result, types.BaseTuple) else args[3]
            rounded = context.cast(builder, value, number, stored_as(target, number))
            emit_store(context, builder, target, builder.extract_value(args[0], first + k), position, rounded)
        return context.get_dummy_value()

    return types.void(line, index, targets, result), emit
