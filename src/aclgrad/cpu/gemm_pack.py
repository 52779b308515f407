"""Packing of the matrix product's operands into panels that the register tile reads from end to end.

A panel holds `width` lanes (rows of A, columns of B). Its units follow each other along K, the lanes of a unit lie
side by side, and the panels of a matrix follow each other:

    address(panel, unit, lane) = packed + ((panel * units + unit) * width + lane) * unit_bytes

A unit is one element widened to the type of the sums, or a pair of bfloat16 neighbours in K where the CPU multiplies
pairs; the second half of the last pair is zero when K is odd. Lanes beyond the matrix hold unspecified values: they
only meet elements of C that are never stored.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .gemm_tile import Operand, VectorISA, first_lanes, masked_load, masked_store, pointer, variant
from .lanes import I16, I32, I64
from .procedures import procedure


class _Units:
    """Turns elements in memory into packed units, a vector of `lanes` at a time (`lanes` = 1 for a scalar)."""

    def __init__(self, operand: Operand, lanes: int) -> None:
        self.operand, self.lanes = operand, lanes
        self.integer = ir.VectorType(I32, lanes)
        self.real = ir.VectorType(operand.real, lanes)

    @property
    def stored(self) -> ir.VectorType:
        """Elements as they lie in memory."""
        kind = {"float16": ir.HalfType(), "bfloat16": I16}.get(self.operand.name, self.operand.real)
        return ir.VectorType(kind, self.lanes)

    @property
    def unit(self) -> ir.VectorType:
        return self.integer if self.operand.depth == 2 else self.real

    def widen(self, builder: ir.IRBuilder, elements: ir.Value) -> ir.Value:
        """Single elements as units."""
        if self.operand.name == "float16":
            return builder.fpext(elements, self.real)
        if self.operand.name == "bfloat16":
            return builder.bitcast(self.upper_half(builder, elements), self.real)
        return elements

    def pair(self, builder: ir.IRBuilder, first: ir.Value, second: ir.Value) -> ir.Value:
        """Two neighbours in K as one unit; the first in the low half, as contiguous memory has them."""
        return builder.or_(builder.zext(first, self.integer), self.upper_half(builder, second))

    def upper_half(self, builder: ir.IRBuilder, elements: ir.Value) -> ir.Value:
        sixteen = ir.Constant(self.integer, [16] * self.lanes)
        return builder.shl(builder.zext(elements, self.integer), sixteen)

    def along_k(self, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        """`lanes` consecutive units of one row that is contiguous in K."""
        if self.operand.depth == 2:
            return builder.load(address, typ=self.integer, align=2)
        return self.widen(builder, builder.load(address, typ=self.stored, align=self.operand.itemsize))


@cache
def _make_copy_lanes(operand: Operand, lanes: int) -> Any:
    """`copy_lanes(dst, src, second, paired, count)`: a unit of `count` <= `lanes` lanes that are contiguous in memory.

    `second` is the byte distance to the second element of a pair; unless `paired`, zero takes that element's place.
    """
    units = _Units(operand, lanes)

    def emit(builder: ir.IRBuilder, args: Any, mask: ir.Value | None) -> None:
        dst, src, second, paired = args[:4]

        def load(address: ir.Value) -> ir.Value:
            if mask is None:
                return builder.load(address, typ=units.stored, align=operand.itemsize)
            return masked_load(builder, address, mask, units.stored, operand.itemsize)

        elements = load(pointer(builder, src))
        if operand.depth == 2:
            present = builder.icmp_signed("!=", paired, I64(0))
            distance = builder.select(present, second, I64(0))  # never read beyond K
            other = load(pointer(builder, builder.add(src, distance)))
            blank = ir.Constant(units.stored, [0] * lanes)
            packed = units.pair(builder, elements, builder.select(present, other, blank))
        else:
            packed = units.widen(builder, elements)
        if mask is None:
            builder.store(packed, pointer(builder, dst), align=operand.unit)
        else:
            masked_store(builder, packed, pointer(builder, dst), mask, operand.unit)

    @intrinsic
    def copy_lanes(typing: Any, dst: Any, src: Any, second: Any, paired: Any, count: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            if lanes == 1:
                emit(builder, args, None)
            else:
                with builder.if_else(builder.icmp_signed(">=", args[4], I64(lanes))) as (whole, part):
                    with whole:
                        emit(builder, args, None)
                    with part:
                        emit(builder, args, first_lanes(builder, lanes, args[4]))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), codegen

    return copy_lanes


@cache
def _make_transpose(operand: Operand, lanes: int) -> Any:
    """`transpose(dst, step, src, row_step, rows, count)`: a square of `lanes` rows by `lanes` units, contiguous in K.

    Rows from `rows` on repeat the last one; `count` lanes of every unit are stored, `step` bytes apart.
    """
    units = _Units(operand, lanes)
    low = [lane // 2 + lanes * (lane % 2) for lane in range(lanes)]
    interleavings = [ir.Constant(ir.VectorType(I32, lanes), [lane + half for lane in low]) for half in (0, lanes // 2)]

    def emit(builder: ir.IRBuilder, args: Any) -> None:
        dst, step, src, row_step, rows, count = args
        vectors = []
        for row in range(lanes):
            inside = builder.icmp_signed("<", I64(row), rows)
            index = builder.select(inside, I64(row), builder.sub(rows, I64(1)))
            address = builder.add(src, builder.mul(index, row_step))
            vectors.append(units.along_k(builder, pointer(builder, address)))
        for _ in range(lanes.bit_length() - 1):
            pairs = zip(vectors[: lanes // 2], vectors[lanes // 2 :], strict=True)
            vectors = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in interleavings]
        with builder.if_else(builder.icmp_signed(">=", count, I64(lanes))) as (whole, part):
            with whole:
                for index, vector in enumerate(vectors):
                    address = builder.add(dst, builder.mul(step, I64(index)))
                    builder.store(vector, pointer(builder, address), align=operand.unit)
            with part:
                mask = first_lanes(builder, lanes, count)
                for index, vector in enumerate(vectors):
                    address = builder.add(dst, builder.mul(step, I64(index)))
                    masked_store(builder, vector, pointer(builder, address), mask, operand.unit)

    @intrinsic
    def transpose(typing: Any, dst: Any, step: Any, src: Any, row_step: Any, rows: Any, count: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            emit(builder, args)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), codegen

    return transpose


@cache
def make_pack(isa: VectorISA, operand: Operand) -> Any:
    """`pack(dst, src, count, lane_stride, k, k_stride, width, panel_begin, panel_end, k_begin, k_end)`.

    Packs the panels [panel_begin, panel_end) of an operand with `count` lanes and `k` elements each at address `src`
    (strides in elements), and of those panels the part [k_begin, k_end) of K; k_begin is a multiple of `operand.depth`,
    and so is k_end unless it is k. Threads that share the work split it along either range.
    """
    lanes = operand.lanes(isa)
    itemsize, unit_bytes, depth = operand.itemsize, operand.unit, operand.depth
    copy_lanes, copy_one = _make_copy_lanes(operand, lanes), _make_copy_lanes(operand, 1)
    transpose = _make_transpose(operand, lanes)

    def pack(
        _thread: int,
        _threads: int,
        dst: int,
        src: int,
        count: int,
        lane_stride: int,
        k: int,
        k_stride: int,
        width: int,
        panel_begin: int,
        panel_end: int,
        k_begin: int,
        k_end: int,
    ) -> None:
        units = (k + depth - 1) // depth
        begin, end = k_begin // depth, (k_end + depth - 1) // depth
        paired_end = k_end // depth
        lane_step, k_step = lane_stride * itemsize, k_stride * itemsize
        if depth == 1 and width == 1 and k_stride == 1:  # a panel is a row as it lies
            for panel in range(panel_begin, min(panel_end, count)):  # the last ones may have no row
                packed, source = dst + panel * units * unit_bytes, src + panel * lane_step
                for unit in range(begin, end, lanes):
                    copy_lanes(packed + unit * unit_bytes, source + unit * itemsize, 0, 0, end - unit)
            return
        squares_end = begin + (paired_end - begin) // lanes * lanes if k_stride == 1 else begin
        for panel in range(panel_begin, panel_end):
            first = panel * width
            packed = dst + panel * units * width * unit_bytes
            source = src + first * lane_step
            valid = min(width, count - first)
            if lane_stride == 1:
                for unit in range(begin, end):
                    paired = 1 if unit < paired_end else 0
                    for lane in range(0, valid, lanes):
                        copy_lanes(
                            packed + (unit * width + lane) * unit_bytes,
                            source + unit * depth * k_step + lane * itemsize,
                            k_step,
                            paired,
                            valid - lane,
                        )
                continue
            for lane in range(0, valid, lanes):
                for unit in range(begin, squares_end, lanes):
                    transpose(
                        packed + (unit * width + lane) * unit_bytes,
                        width * unit_bytes,
                        source + lane * lane_step + unit * depth * itemsize,
                        lane_step,
                        valid - lane,
                        width - lane,
                    )
            for unit in range(squares_end, end):
                paired = 1 if unit < paired_end else 0
                for lane in range(valid):
                    copy_one(
                        packed + (unit * width + lane) * unit_bytes,
                        source + lane * lane_step + unit * depth * k_step,
                        k_step,
                        paired,
                        1,
                    )

    return procedure(pack, f"gemm_pack_{variant(isa, operand)}", 11)
