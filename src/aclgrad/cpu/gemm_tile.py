"""The register tile of the matrix product: a block of C kept in vector registers while K runs.

The tile is generated as LLVM vector IR, once for every height up to the tallest that fits the register file, so that
few rows cost few instructions. Its operands are packed (see `gemm_pack`): per step of K the tile reads one value of
each row of A, broadcasts it, and multiplies it with the vectors of B, all in one order fixed by K alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from .lanes import I32, I64

ADDRESS = ir.PointerType()


@dataclass(frozen=True)
class VectorISA:
    """What the tile needs to know about a CPU: vector width, its shape in registers, and two instructions."""

    name: str
    bits: int
    rows: int  # tallest tile
    vectors: int  # vectors of B in a row of the tile
    fma: bool
    bf16_dot: bool = False  # a fused pair product of bfloat16 into float32


AVX512_BF16 = VectorISA("avx512bf16", 512, rows=14, vectors=2, fma=True, bf16_dot=True)
AVX512 = VectorISA("avx512", 512, rows=14, vectors=2, fma=True)
AVX2 = VectorISA("avx2", 256, rows=6, vectors=2, fma=True)
NEON = VectorISA("neon", 128, rows=8, vectors=3, fma=True)
GENERIC = VectorISA("generic", 128, rows=6, vectors=2, fma=False)


@cache
def host_isa() -> VectorISA:
    """The widest vector ISA that numba generates code for on this machine."""
    features = config.CPU_FEATURES if config.CPU_FEATURES is not None else get_host_cpu_features()
    present = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    if {"avx512f", "avx512bw", "avx512vl"} <= present:
        return AVX512_BF16 if "avx512bf16" in present else AVX512
    if {"avx2", "fma"} <= present:
        return AVX2
    return NEON if "neon" in present else GENERIC


@dataclass(frozen=True)
class Operand:
    """How elements of A and B are stored in memory and how they lie in a packed panel."""

    name: str
    itemsize: int  # bytes of an element in memory
    unit: int  # bytes of a packed unit
    depth: int  # elements along K in a packed unit: two where a dot instruction takes pairs

    @property
    def real(self) -> ir.Type:
        """The type products are accumulated in."""
        return ir.DoubleType() if self.unit == 8 else ir.FloatType()

    def lanes(self, isa: VectorISA) -> int:
        """Packed units in a vector."""
        return isa.bits // 8 // self.unit


def variant(isa: VectorISA, operand: Operand) -> str:
    """A name for all that decides the machine code of the product."""
    return f"{isa.name}_{isa.rows}x{isa.vectors}_{operand.name}_{operand.depth}"


class BFloatType(ir.Type):  # llvmlite is untyped
    """LLVM's bfloat, which llvmlite lacks; the dot instruction is declared with it."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


def declare(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """An LLVM intrinsic function, declared once per module."""
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, ir.FunctionType(result, arguments), name)


def pointer(builder: ir.IRBuilder, address: ir.Value, offset: int = 0) -> ir.Value:
    """`address + offset` bytes as a pointer."""
    return builder.inttoptr(builder.add(address, I64(offset)), ADDRESS)


def first_lanes(builder: ir.IRBuilder, lanes: int, count: ir.Value) -> ir.Value:
    """Mask of the lanes below `count`."""
    vector = ir.VectorType(I64, lanes)
    indices = ir.Constant(vector, list(range(lanes)))
    return builder.icmp_signed("<", indices, splat(builder, count, lanes))


def splat(builder: ir.IRBuilder, scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector with `scalar` in every lane."""
    vector = ir.VectorType(scalar.type, lanes)
    blank = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(blank, scalar, I32(0))
    return builder.shuffle_vector(single, blank, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def type_suffix(vector: ir.VectorType) -> str:
    """How LLVM spells a vector type in the name of an intrinsic: v16f32."""
    element = vector.element
    if isinstance(element, ir.IntType):
        return f"v{vector.count}i{element.width}"
    return f"v{vector.count}{element.intrinsic_name}"


def masked_load(
    builder: ir.IRBuilder, address: ir.Value, mask: ir.Value, vector: ir.VectorType, align: int
) -> ir.Value:
    """Lanes outside the mask are not touched in memory and come back as zero."""
    name = f"llvm.masked.load.{type_suffix(vector)}.p0"
    function = declare(builder.module, name, vector, [ADDRESS, I32, mask.type, vector])
    return builder.call(function, [address, I32(align), mask, ir.Constant(vector, None)])


def masked_store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, mask: ir.Value, align: int) -> None:
    """Lanes outside the mask are not touched in memory."""
    name = f"llvm.masked.store.{type_suffix(value.type)}.p0"
    function = declare(builder.module, name, ir.VoidType(), [value.type, ADDRESS, I32, mask.type])
    builder.call(function, [value, address, I32(align), mask])


class _TileEmitter:
    """Writes the function that serves every height of one (ISA, operand) pair."""

    def __init__(self, isa: VectorISA, operand: Operand, module: ir.Module) -> None:
        self.isa, self.operand, self.module = isa, operand, module
        self.lanes = operand.lanes(isa)
        self.vector = ir.VectorType(operand.real, self.lanes)
        self.vector_bytes = isa.bits // 8
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def function(self) -> ir.Function:
        """void(a, b, steps, c, row_bytes, rows, columns, accumulate, height), all 64-bit integers."""
        name = f"aclgrad_gemm_tile_{variant(self.isa, self.operand)}"
        if name in self.module.globals:
            return self.module.globals[name]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64] * 9), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        done = function.append_basic_block("done")
        by_height = builder.switch(function.args[8], done)
        for height in range(1, self.isa.rows + 1):
            block = function.append_basic_block(f"height{height}")
            by_height.add_case(I64(height), block)
            builder.position_at_end(block)
            sums = self.accumulate_over_k(builder, function, height)
            self.store(builder, function, sums, done)
        builder.position_at_end(done)
        builder.ret_void()
        return function

    def accumulate_over_k(self, builder: ir.IRBuilder, function: ir.Function, height: int) -> list[list[ir.Value]]:
        """The loop over K; returns the finished sums, one vector per row and vector column."""
        a_start, b_start, steps = function.args[:3]
        before = builder.block
        loop = function.append_basic_block(f"k{height}")
        after = function.append_basic_block(f"sums{height}")
        builder.cbranch(builder.icmp_signed(">", steps, I64(0)), loop, after)

        builder.position_at_end(loop)
        left, a, b = (self.phi(builder, I64, start, before) for start in (steps, a_start, b_start))
        running = [
            [self.phi(builder, self.vector, self.zero, before) for _ in range(self.isa.vectors)] for _ in range(height)
        ]
        columns = [
            builder.load(pointer(builder, b, j * self.vector_bytes), typ=self.vector, align=self.vector_bytes)
            for j in range(self.isa.vectors)
        ]
        summed = []
        for i in range(height):
            row = self.broadcast(builder, pointer(builder, a, i * self.operand.unit))
            summed.append([self.multiply_add(builder, row, columns[j], running[i][j]) for j in range(self.isa.vectors)])
        for phi, step in ((left, -1), (a, height * self.operand.unit), (b, self.isa.vectors * self.vector_bytes)):
            phi.add_incoming(builder.add(phi, I64(step)), loop)
        for i in range(height):
            for j in range(self.isa.vectors):
                running[i][j].add_incoming(summed[i][j], loop)
        builder.cbranch(builder.icmp_signed(">", left, I64(1)), loop, after)

        builder.position_at_end(after)
        sums = []
        for i in range(height):
            sums.append([self.phi(builder, self.vector, self.zero, before) for _ in range(self.isa.vectors)])
            for j in range(self.isa.vectors):
                sums[i][j].add_incoming(summed[i][j], loop)
        return sums

    @staticmethod
    def phi(builder: ir.IRBuilder, kind: ir.Type, start: ir.Value, before: ir.Block) -> ir.PhiInstr:
        phi = builder.phi(kind)
        phi.add_incoming(start, before)
        return phi

    def broadcast(self, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
        kind = I32 if self.operand.depth == 2 else self.operand.real
        return splat(builder, builder.load(address, typ=kind, align=self.operand.unit), self.lanes)

    def multiply_add(self, builder: ir.IRBuilder, row: ir.Value, column: ir.Value, total: ir.Value) -> ir.Value:
        if self.operand.depth == 2:
            pairs = ir.VectorType(BFloatType(), 2 * self.lanes)
            name = f"llvm.x86.avx512bf16.dpbf16ps.{self.isa.bits}"
            dot = declare(self.module, name, self.vector, [self.vector, pairs, pairs])
            return builder.call(dot, [total, builder.bitcast(row, pairs), builder.bitcast(column, pairs)])
        if self.isa.fma:
            fma = declare(self.module, f"llvm.fma.{type_suffix(self.vector)}", self.vector, [self.vector] * 3)
            return builder.call(fma, [row, column, total])
        return builder.fadd(total, builder.fmul(row, column))

    def store(self, builder: ir.IRBuilder, function: ir.Function, sums: list[list[ir.Value]], done: ir.Block) -> None:
        """C = sums or C += sums; a tile on the edge of C writes only the rows and columns that exist."""
        height = len(sums)
        c, row_bytes, rows, columns, accumulate = function.args[3:8]
        adds = splat(builder, builder.icmp_signed("!=", accumulate, I64(0)), self.lanes)
        whole = function.append_basic_block(f"whole{height}")
        edge = function.append_basic_block(f"edge{height}")
        builder.cbranch(
            builder.and_(
                builder.icmp_signed(">=", rows, I64(height)),
                builder.icmp_signed(">=", columns, I64(self.isa.vectors * self.lanes)),
            ),
            whole,
            edge,
        )
        unaligned = self.operand.unit

        builder.position_at_end(whole)
        row = c
        for i in range(height):
            for j in range(self.isa.vectors):
                address = pointer(builder, row, j * self.vector_bytes)
                old = builder.load(address, typ=self.vector, align=unaligned)
                total = builder.fadd(sums[i][j], builder.select(adds, old, self.zero))
                builder.store(total, address, align=unaligned)
            row = builder.add(row, row_bytes)
        builder.branch(done)

        builder.position_at_end(edge)
        masks = [
            first_lanes(builder, self.lanes, builder.sub(columns, I64(j * self.lanes))) for j in range(self.isa.vectors)
        ]
        row = c
        for i in range(height):
            exists = function.append_basic_block(f"edge{height}_{i}")
            builder.cbranch(builder.icmp_signed(">", rows, I64(i)), exists, done)
            builder.position_at_end(exists)
            for j in range(self.isa.vectors):
                address = pointer(builder, row, j * self.vector_bytes)
                old = masked_load(builder, address, masks[j], self.vector, unaligned)
                total = builder.fadd(sums[i][j], builder.select(adds, old, self.zero))
                masked_store(builder, total, address, masks[j], unaligned)
            row = builder.add(row, row_bytes)
        builder.branch(done)


@cache
def make_tile(isa: VectorISA, operand: Operand) -> Any:
    """`tile(a, b, steps, c, row_bytes, rows, columns, accumulate, height)`, for compiled code; all 64-bit integers.

    Multiplies `steps` packed units of an A panel of `height` rows at address `a` with those of a B panel at `b`. The
    block of C at `c`, of which `rows` x `columns` exist, is overwritten, or added to if `accumulate` is not 0.
    """

    @intrinsic
    def tile(typing: Any, *args: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> Any:
            numbers = [
                context.cast(builder, builder.extract_value(values[0], index), kind, types.int64)
                for index, kind in enumerate(args)
            ]
            builder.call(_TileEmitter(isa, operand, builder.module).function(), numbers)
            return context.get_dummy_value()

        return types.void(types.StarArgTuple.from_types(args)), emit

    return tile
