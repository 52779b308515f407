"""Products of large matrices by the vendor's library, in float32.

A GPU multiplies float32 many times slower than half precision. A large product of float32 is therefore made of three
of float16: with x·s = high + low, both rounded to float16, a·b is high·high + high·low + low·high to 22 bits of a and
b. The scale s, a power of two, brings the largest element of a matrix to 2^14: elements down to 2^-29 of it keep all
their bits, smaller ones are exact to 2^-39 of it. Who takes the result multiplies by both 1/s: see `unscaled`. Matrix
units cut sums off instead of rounding them, always towards zero, which adds up along a deep product: the high parts
are therefore multiplied a piece of the depth at a time, and the pieces added with rounding. Where torch's switch allows
TF32, the high parts alone are as good, and in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ...core.memory import Scratch
from ...gpu.launch import Kernel, jit
from ...gpu.products import multiply

Operand = Sequence[torch.Tensor]
"""A matrix as it is, or its high and its low part."""

BLOCK_ROWS, BLOCK_COLUMNS = 8, 256
PIECE = 512
"""Terms that a matrix unit may sum before the error is more than that of a float32 sum."""

LEAST_EXPONENT = tl.constexpr(20)  # of the largest element, so that scales and their inverses are ordinary numbers


@jit
def exponent(peak):  # type: ignore[no-untyped-def]
    """The biased exponent of the largest element."""
    return tl.maximum(tl.load(peak) >> 23, LEAST_EXPONENT)


@jit
def unscaled(value, peak):  # type: ignore[no-untyped-def]
    """The value over the scale of a matrix with this peak."""
    return value * ((exponent(peak) - 14) << 23).to(tl.float32, bitcast=True)


@jit
def find_peak(peak, source, COUNT, WIDTH, ROW, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The bits of the largest finite magnitude of source [COUNT, WIDTH], whose rows lie ROW apart."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    largest = tl.zeros([ROWS, COLUMNS], tl.int32)
    for start in range(0, WIDTH, COLUMNS):
        columns = (start + tl.arange(0, COLUMNS))[None, :]
        x = tl.load(source + rows * ROW + columns, mask=(rows < COUNT) & (columns < WIDTH), other=0.0)
        bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        largest = tl.maximum(largest, tl.where(bits < 0x7F800000, bits, 0))
    tl.atomic_max(peak, tl.max(tl.max(largest, axis=1), axis=0), sem="relaxed")


@jit
def split(high, low, source, peak, COUNT, WIDTH, ROW, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The two parts of source, in rows as far apart."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (rows < COUNT) & (columns < WIDTH)
    scale = ((268 - exponent(peak)) << 23).to(tl.float32, bitcast=True)
    x = tl.load(source + rows * ROW + columns, mask=inside, other=0.0) * scale
    first = x.to(tl.float16)
    tl.store(high + rows * ROW + columns, first, mask=inside)
    if low is not None:
        tl.store(low + rows * ROW + columns, (x - first.to(tl.float32)).to(tl.float16), mask=inside)


class Parts:
    """Room for the parts of one float32 matrix [count, width] in rows of `row` elements, and for its peak."""

    def __init__(self, scratch: Scratch, device: torch.device, count: int, width: int, row: int) -> None:
        self.high, self.low = (scratch.tensor((count, row), torch.float16) for _ in range(2))
        self.peak = scratch.tensor((1,), torch.int32)
        sizes, block = (count, width, row), {"ROWS": BLOCK_ROWS, "COLUMNS": BLOCK_COLUMNS}
        down = triton.cdiv(count, BLOCK_ROWS)
        self._find = Kernel(find_peak, (down,), device, (torch.int32, torch.float32), sizes, block)
        self._splits = [
            Kernel(
                split, (down, triton.cdiv(width, BLOCK_COLUMNS)), device,
                (torch.float16, low, torch.float32, torch.int32), sizes, block,
            )
            for low in (None, torch.float16)
        ]  # fmt: skip

    def of(self, matrix: torch.Tensor, workspace: torch.Tensor) -> Operand:
        """The parts of the matrix that the product needs."""
        precise = not torch.backends.cuda.matmul.allow_tf32
        peak, high = self.peak.view(workspace), self.high.view(workspace)
        low = self.low.view(workspace) if precise else None
        peak.zero_()
        self._find(peak, matrix)
        self._splits[precise](high, low, matrix, peak)
        return (high,) if low is None else (high, low)


def operand(parts: Parts | None, matrix: torch.Tensor, workspace: torch.Tensor) -> Operand:
    """The matrix as `multiply_parts` wants it."""
    return (matrix,) if parts is None else parts.of(matrix, workspace)


def multiply_parts(a: Operand, b: Operand, out: torch.Tensor) -> None:
    """Write a @ b, in float32 or the operands' own dtype."""
    if not a[0].shape[1]:
        out.zero_()
        return
    if len(a) == 1:
        multiply(out, a[0], b[0])
        return
    (high_a, low_a), (high_b, low_b) = a, b
    multiply(out, high_a, low_b)
    multiply(out, low_a, high_b, add=True)
    for start in range(0, high_a.shape[1], PIECE):
        multiply(out, high_a[:, start : start + PIECE], high_b[start : start + PIECE], add=True)


def large(rows: int, width: int, depth: int) -> bool:
    """Whether a float32 product is worth taking its operands apart."""
    return rows * width * depth >= 2**31
