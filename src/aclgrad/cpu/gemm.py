"""C = A @ B on the CPU, for calls from inside kernels: float32, or bfloat16 and float16 with float32 sums, or float64.

A product has parts that a kernel combines as it needs. `pack` lays out A in panels as tall as `panel_height` says and
B in panels `width` wide; a packed operand lives in the caller's memory and serves any number of products. `multiply`
computes any rectangle of tiles of C on the calling thread. `product` is the whole of it, shared by threads in bounded
memory.

Every element of C is summed in one order that depends on K alone, not on the number of threads nor on how tiles are
shared out. Transposition is a matter of strides. Addresses are integers (`address_of` a pointer), strides count
elements. Operands of different types go together as long as their packed units agree: float16 and float32 do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .compiler import jit
from .gemm_pack import make_pack
from .gemm_tile import GENERIC, Operand, VectorISA, host_isa, make_tile, variant
from .procedures import named, procedure
from .threads import barrier, share

ALIGNMENT = 64  # bytes, of every packed operand

K_BLOCK = 256  # units of K between two additions to C: a panel of A then fits half of a level-1 cache
B_BLOCK_BYTES = 512 * 1024  # part of B that the rows of A pass over: half of a level-2 cache

SHARED_K = 4 * K_BLOCK  # units, columns and panels of rows that the threads pack at a time in `product`
SHARED_COLUMNS = 2048
SHARED_PANELS = 64


@dataclass(frozen=True)
class Gemm:
    """The product for one element type. The functions are for kernels and take 64-bit integers throughout.

    A kernel made with these numbers carries `name` in its own (see `procedures.named`): they end up in its code.
    """

    name: str
    operand: Operand
    rows: int  # tallest panel of A
    width: int  # columns of a panel of B
    pack: Any  # see gemm_pack.make_pack
    multiply: Any  # see make_multiply
    product: Any  # see make_product

    @property
    def sums(self) -> torch.dtype:
        """The dtype of C."""
        return torch.float64 if self.operand.unit == torch.float64.itemsize else torch.float32

    def units(self, k: int) -> int:
        """Packed units of a lane with `k` elements."""
        return -(-k // self.operand.depth)

    def panel_height(self, m: int) -> int:
        """Rows of a panel of A such that `m` rows fill the fewest panels evenly."""
        panels = max(1, -(-m // self.rows))
        return max(1, -(-m // panels))

    def packed_a_bytes(self, m: int, k: int) -> int:
        """Bytes of a packed A of `m` rows."""
        return self._packed_bytes(m, k, self.panel_height(m))

    def packed_b_bytes(self, n: int, k: int) -> int:
        """Bytes of a packed B of `n` columns."""
        return self._packed_bytes(n, k, self.width)

    def product_bytes(self, m: int, n: int, k: int) -> int:
        """Bytes of scratch memory that `product` needs."""
        height, k = self.panel_height(m), min(k, SHARED_K * self.operand.depth)
        rows, columns = min(m, SHARED_PANELS * height), min(n, SHARED_COLUMNS)
        return self._packed_bytes(rows, k, height) + self._packed_bytes(columns, k, self.width)

    def _packed_bytes(self, lanes: int, k: int, width: int) -> int:
        size = -(-lanes // width) * width * self.units(k) * self.operand.unit
        return -(-size // ALIGNMENT) * ALIGNMENT


@cache
def gemm_for(dtype: torch.dtype, isa: VectorISA | None = None) -> Gemm:
    """The product of two matrices of `dtype`; by default for the vector instructions of this machine."""
    isa = isa or host_isa()
    operand = _operand(dtype, isa)
    width = isa.vectors * operand.lanes(isa)
    functions = make_pack(isa, operand), make_multiply(isa, _packed(operand)), make_product(isa, operand)
    return Gemm(variant(isa, operand), operand, isa.rows, width, *functions)


def _operand(dtype: torch.dtype, isa: VectorISA) -> Operand:
    name = str(dtype).removeprefix("torch.")
    if dtype == torch.float64:
        return Operand(name, itemsize=8, unit=8, depth=1)
    if dtype == torch.bfloat16 and isa.bf16_dot:
        return Operand(name, itemsize=2, unit=4, depth=2)
    if dtype in (torch.float32, torch.float16, torch.bfloat16):
        return Operand(name, itemsize=dtype.itemsize, unit=4, depth=1)
    raise TypeError(f"gemm_for: dtype is {name}, expected float64, float32, float16 or bfloat16")


def _packed(operand: Operand) -> Operand:
    """One for all that are packed alike, whatever they are in memory: the tile sees no more of them."""
    return _operand(torch.float32, GENERIC) if operand.unit != operand.itemsize * operand.depth else operand


@jit
def share_grid(rows: int, columns: int, thread: int, threads: int) -> tuple[int, int, int, int]:
    """The part (row_begin, row_end, column_begin, column_end) of a grid of tiles that falls to a thread.

    The threads are cut into a rectangle such that the largest part is smallest.
    """
    across, smallest = 1, rows * columns + 1
    for candidate in range(1, threads + 1):
        if threads % candidate == 0:
            down = threads // candidate
            largest = ((rows + down - 1) // down) * ((columns + candidate - 1) // candidate)
            if largest < smallest:
                across, smallest = candidate, largest
    row_begin, row_end = share(rows, 1, thread // across, threads // across)
    column_begin, column_end = share(columns, 1, thread % across, across)
    return row_begin, row_end, column_begin, column_end


@cache
def make_multiply(isa: VectorISA, operand: Operand) -> Any:
    """`multiply(c, row_stride, a, b, m, n, k, height, a_begin, a_end, b_begin, b_end, accumulate)`.

    C is `m` x `n` of float32 (float64 for float64 operands) at address `c`, its columns contiguous. `a` and `b` are
    packed operands, `height` the panel height of A. The tiles in the panels [a_begin, a_end) of A and [b_begin, b_end)
    of B are written, or added to if `accumulate` is not 0.
    """
    tile = make_tile(isa, operand)
    unit_bytes, depth = operand.unit, operand.depth
    width = isa.vectors * operand.lanes(isa)
    b_block = max(1, B_BLOCK_BYTES // (K_BLOCK * width * unit_bytes))

    def multiply(
        _thread: int,
        _threads: int,
        c: int,
        row_stride: int,
        a: int,
        b: int,
        m: int,
        n: int,
        k: int,
        height: int,
        a_begin: int,
        a_end: int,
        b_begin: int,
        b_end: int,
        accumulate: int,
    ) -> None:
        units = (k + depth - 1) // depth
        row_bytes = row_stride * unit_bytes
        for start in range(0, max(units, 1), K_BLOCK):
            steps = min(K_BLOCK, units - start)
            adds = 1 if start > 0 else accumulate
            for block in range(b_begin, b_end, b_block):
                for i in range(a_begin, a_end):
                    panel_a = a + (i * units + start) * height * unit_bytes
                    for j in range(block, min(block + b_block, b_end)):
                        tile(
                            panel_a,
                            b + (j * units + start) * width * unit_bytes,
                            steps,
                            c + i * height * row_bytes + j * width * unit_bytes,
                            row_bytes,
                            m - i * height,
                            n - j * width,
                            adds,
                            height,
                        )

    return procedure(multiply, f"gemm_multiply_{variant(isa, operand)}", 13)


@cache
def make_product(isa: VectorISA, operand: Operand) -> Any:
    """The product of matrices in memory, by all threads; the arguments are those of `product` below.

    A is `m` x `k` (strides a_row, a_k), B is `k` x `n` (strides b_k, b_column), C as in `multiply`. `height` is
    `panel_height(m)`, `scratch` the address of `product_bytes(m, n, k)` bytes. Every thread of the group calls it, and
    finds C complete when it returns.
    """
    pack, multiply = make_pack(isa, operand), make_multiply(isa, _packed(operand))
    itemsize, unit_bytes, pair = operand.itemsize, operand.unit, operand.depth
    width = isa.vectors * operand.lanes(isa)
    k_block = SHARED_K * pair

    def product(
        group: Any,
        thread: int,
        threads: int,
        c: int,
        row_stride: int,
        a: int,
        a_row: int,
        a_k: int,
        b: int,
        b_k: int,
        b_column: int,
        m: int,
        n: int,
        k: int,
        height: int,
        scratch: int,
        accumulate: int,
    ) -> None:
        m_block = SHARED_PANELS * height
        for column in range(0, n, SHARED_COLUMNS):
            columns = min(SHARED_COLUMNS, n - column)
            b_panels = (columns + width - 1) // width
            for start in range(0, max(k, 1), k_block):
                depth = min(k_block, k - start)
                units = (depth + pair - 1) // pair
                packed_a = scratch + b_panels * width * units * unit_bytes
                b_begin, b_end = share(b_panels, 1, thread, threads)
                source = b + (start * b_k + column * b_column) * itemsize
                pack(scratch, source, columns, b_column, depth, b_k, width, b_begin, b_end, 0, depth)
                for row in range(0, m, m_block):
                    rows = min(m_block, m - row)
                    a_panels = (rows + height - 1) // height
                    a_begin, a_end = share(a_panels, 1, thread, threads)
                    source = a + (row * a_row + start * a_k) * itemsize
                    pack(packed_a, source, rows, a_row, depth, a_k, height, a_begin, a_end, 0, depth)
                    barrier(group)
                    a_begin, a_end, b_begin, b_end = share_grid(a_panels, b_panels, thread, threads)
                    target = c + (row * row_stride + column) * unit_bytes
                    adds = 1 if start > 0 else accumulate
                    multiply(
                        target, row_stride, packed_a, scratch, rows, columns, depth, height,
                        a_begin, a_end, b_begin, b_end, adds,
                    )  # fmt: skip
                    barrier(group)

    return jit(named(product, f"gemm_product_{variant(isa, operand)}"))
