"""How elements of each dtype lie in memory and how they become the numbers kernels compute with, as LLVM instructions.

All conversions are branch-free, so that loops over them vectorise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from llvmlite import ir
from numba import types

HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


class Element(NamedTuple):
    """A dtype's two faces."""

    memory: ir.Type
    value: types.Type


ELEMENTS: dict[torch.dtype, Element] = {
    torch.float16: Element(HALF, types.float32),
    torch.bfloat16: Element(I16, types.float32),
    torch.float32: Element(FLOAT, types.float32),
    torch.float64: Element(DOUBLE, types.float64),
    torch.int8: Element(I8, types.int64),
    torch.int16: Element(I16, types.int64),
    torch.int32: Element(I32, types.int64),
    torch.int64: Element(I64, types.int64),
    torch.uint8: Element(I8, types.int64),
    torch.bool: Element(I8, types.int64),
}


def widen(builder: ir.IRBuilder, dtype: torch.dtype, raw: ir.Value) -> ir.Value:
    """An element as the number it stands for, exactly."""
    if dtype == torch.float16:
        return builder.fpext(raw, FLOAT)
    if dtype == torch.bfloat16:
        return builder.bitcast(builder.shl(builder.zext(raw, I32), I32(16)), FLOAT)
    if dtype in (torch.float32, torch.float64, torch.int64):
        return raw
    return builder.zext(raw, I64) if dtype in (torch.uint8, torch.bool) else builder.sext(raw, I64)


def narrow(builder: ir.IRBuilder, dtype: torch.dtype, number: ir.Value) -> ir.Value:
    """A float32 or float64 number rounded once to nearest even, or an int64 number cut to size, as an element."""
    if dtype in (torch.float16, torch.bfloat16):
        single = _float_to_odd(builder, number) if number.type == DOUBLE else number
        return builder.fptrunc(single, HALF) if dtype == torch.float16 else _bfloat_bits(builder, single)
    if dtype == torch.float32:
        return builder.fptrunc(number, FLOAT) if number.type == DOUBLE else number
    if dtype == torch.float64:
        return builder.fpext(number, DOUBLE) if number.type == FLOAT else number
    memory = ELEMENTS[dtype].memory
    return number if memory == I64 else builder.trunc(number, memory)


def _float_to_odd(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """float64 to float32, inexactly to the neighbour with an odd last bit: to round that again is to round once."""
    near = builder.fptrunc(number, FLOAT)
    back = builder.fpext(near, DOUBLE)
    sizes = [builder.and_(builder.bitcast(value, I64), I64(2**63 - 1)) for value in (back, number)]
    inexact = builder.fcmp_ordered("!=", back, number)
    too_far = builder.and_(inexact, builder.icmp_unsigned(">", sizes[0], sizes[1]))
    towards_zero = builder.sub(builder.bitcast(near, I32), builder.zext(too_far, I32))
    return builder.bitcast(builder.or_(towards_zero, builder.zext(inexact, I32)), FLOAT)


def _bfloat_bits(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    bits = builder.bitcast(number, I32)
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    rounded = builder.add(bits, builder.add(odd, I32(0x7FFF)))
    upper = builder.trunc(builder.lshr(rounded, I32(16)), I16)
    # A NaN is replaced, because rounding could carry its payload into Inf; and replaced last, because a truncation
    # straight into memory is slow on some CPUs.
    return builder.select(builder.fcmp_unordered("uno", number, number), I16(0x7FC0), upper)
