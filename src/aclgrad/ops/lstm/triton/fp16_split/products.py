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
from typing import Any

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.gpu.launch import Kernel, jit, multiprocessors
from aclgrad.gpu.products import multiply

Operand = Sequence[torch.Tensor]
"""A matrix as it is, or its high and its low part."""

BLOCK_ROWS, BLOCK_COLUMNS = 8, 256
PIECE = 512
"""Terms that a matrix unit may sum before the error is more than that of a float32 sum."""

STEP_PIECE = tl.constexpr(128)
"""The same where a step of a recurrence is computed, whose errors all later steps inherit."""

TILE, OWN_TILE = (128, 256), (128, 128)
"""Rows and columns of a product that a multiprocessor makes at a time, of the library's and of our own."""

OVERHEAD, OWN_OVERHEAD = 1024, 256
"""Terms of the depth that the start and the end of a tile cost."""

MOST_SHARES = 8

LEAST_PEAK = tl.constexpr(20 << 23)  # so that scales and their inverses are ordinary numbers


@jit
def magnitude(x):  # type: ignore[no-untyped-def]
    """The bits of |x|; 0 for what is not finite. The largest of a matrix, and at least `LEAST_PEAK`, is its peak."""
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return bits * (bits < 0x7F800000).to(tl.int32)


@jit
def scaled(value, peak):  # type: ignore[no-untyped-def]
    """The value times the scale of a matrix with this peak."""
    return value * ((268 - (peak >> 23)) << 23).to(tl.float32, bitcast=True)


@jit
def unscaled(value, peak):  # type: ignore[no-untyped-def]
    """The value over the scale of a matrix with this peak."""
    return value * (((peak >> 23) - 14) << 23).to(tl.float32, bitcast=True)


@jit
def find_peak(peak, source, by, COUNT, WIDTH, ROW, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The bits of the largest finite magnitude of source [COUNT, WIDTH], whose rows lie ROW apart; see `read`."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    largest = tl.full([ROWS, COLUMNS], LEAST_PEAK, tl.int32)
    start = 0
    while start < WIDTH:
        columns = (start + tl.arange(0, COLUMNS))[None, :]
        x = read(source, by, rows, columns, COUNT, WIDTH, ROW)
        largest = tl.maximum(largest, magnitude(x))
        start += COLUMNS
    tl.atomic_max(peak, tl.max(tl.max(largest, axis=1), axis=0), sem="relaxed")


@jit
def read(source, by, rows, columns, COUNT, WIDTH, ROW):  # type: ignore[no-untyped-def]
    """Elements of source; each row over the scale of a row with the peak that `by` has for it, if that is wanted."""
    x = tl.load(source + rows * ROW + columns, mask=(rows < COUNT) & (columns < WIDTH), other=0.0)
    if by is not None:
        x = unscaled(x, tl.load(by + rows, mask=rows < COUNT, other=LEAST_PEAK))
    return x


@jit
def split(  # type: ignore[no-untyped-def]
    high, again, low, source, by, peak, COUNT, WIDTH, ROW, INTO, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """The two parts of source, in rows INTO apart; the high one in a second place as well, if that is wanted."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (rows < COUNT) & (columns < WIDTH)
    x = scaled(read(source, by, rows, columns, COUNT, WIDTH, ROW), tl.load(peak))
    first = x.to(tl.float16)
    tl.store(high + rows * INTO + columns, first, mask=inside)
    if again is not None:
        tl.store(again + rows * INTO + columns, first, mask=inside)
    if low is not None:
        tl.store(low + rows * INTO + columns, (x - first.to(tl.float32)).to(tl.float16), mask=inside)


class Parts:
    """Room for the parts of one float32 matrix [count, width] in rows of `row` elements, and for its peak.

    Rows of the parts are `into` elements apart, as those of the matrix unless given. With `by_rows` it is multiplied
    with a matrix in parts whose rows have scales of their own, row by row: it takes these scales off.
    """

    def __init__(
        self,
        scratch: Scratch,
        device: torch.device,
        count: int,
        width: int,
        row: int,
        *,
        into: int | None = None,
        by_rows: bool = False,
    ) -> None:
        into = into or row
        self.high, self.low = (scratch.tensor((count, into), torch.float16) for _ in range(2))
        self.peak = scratch.tensor((1,), torch.int32)
        sizes, block = (count, width, row), {"ROWS": BLOCK_ROWS, "COLUMNS": BLOCK_COLUMNS}
        down = triton.cdiv(count, BLOCK_ROWS)
        by = torch.int32 if by_rows else None
        self._find = Kernel(find_peak, (down,), device, (torch.int32, torch.float32, by), sizes, block)
        self._splits = [
            Kernel(
                split, (down, triton.cdiv(width, BLOCK_COLUMNS)), device,
                (torch.float16, None, low, torch.float32, by, torch.int32), (*sizes, into), block,
            )
            for low in (None, torch.float16)
        ]  # fmt: skip

    def of(self, matrix: torch.Tensor, workspace: torch.Tensor, by: Any = None) -> Operand:
        """The parts of the matrix that the product needs; `by` are the peaks of the other matrix's rows."""
        precise = not torch.backends.cuda.matmul.allow_tf32
        peak, high = self.peak.view(workspace), self.high.view(workspace)
        low = self.low.view(workspace) if precise else None
        peak.zero_()
        self._find(peak, matrix, by)
        self._splits[precise](high, None, low, matrix, by, peak)
        return (high,) if low is None else (high, low)

    def made(self, workspace: torch.Tensor) -> Operand:
        """The parts that the product needs, made by somebody else."""
        high, low = self.high.view(workspace), self.low.view(workspace)
        return (high,) if torch.backends.cuda.matmul.allow_tf32 else (high, low)


def operand(parts: Parts | None, matrix: torch.Tensor, workspace: torch.Tensor, by: Any = None) -> Operand:
    """The matrix as `multiply_parts` wants it."""
    return (matrix,) if parts is None else parts.of(matrix, workspace, by)


def multiply_parts(a: Operand, b: Operand, out: torch.Tensor) -> None:
    """Write a @ b, in float32 or the operands' own dtype; with shares as the first dimension of out, they add up to it.

    The depth is cut into as many shares, which are multiplied side by side.
    """
    depth = a[0].shape[1]
    if not depth:
        out.zero_()
        return
    shares = out.shape[0] if out.dim() > 2 else 1
    share = depth // shares
    if shares > 1:
        _multiply(
            [_cut_columns(part, shares, share) for part in a], [_cut_rows(part, shares, share) for part in b], out
        )
        rest = shares * share
        if rest < depth:
            _multiply([part[:, rest:] for part in a], [part[rest:] for part in b], out[0], add=True)
    else:
        _multiply(a, b, out.view(out.shape[-2:]))


def _multiply(a: Operand, b: Operand, out: torch.Tensor, *, add: bool = False) -> None:
    if len(a) == 1:
        multiply(out, a[0], b[0], add=add)
        return
    (high_a, low_a), (high_b, low_b) = a, b
    multiply(out, high_a, low_b, add=add)
    multiply(out, low_a, high_b, add=True)
    depth = high_a.shape[-1]
    piece = triton.cdiv(depth, triton.cdiv(depth, PIECE))
    for start in range(0, depth, piece):
        multiply(out, high_a[..., start : start + piece], high_b[..., start : start + piece, :], add=True)


def _cut_columns(matrix: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """[count, rows, width]: columns that lie beside each other."""
    return matrix[:, : count * width].view(len(matrix), count, width).transpose(0, 1)


def _cut_rows(matrix: torch.Tensor, count: int, height: int) -> torch.Tensor:
    """[count, height, columns]: rows that lie below each other."""
    return matrix[: count * height].view(count, height, matrix.shape[1])


def shares_of(rows: int, width: int, depth: int, device: torch.device, *, own: bool) -> int:
    """Into how many shares the depth of a product in parts is best cut, so that all of the device has work."""
    tile, overhead = (OWN_TILE, OWN_OVERHEAD) if own else (TILE, OVERHEAD)
    tiles: int = triton.cdiv(rows, tile[0]) * triton.cdiv(width, tile[1])

    def cost(shares: int) -> int:
        rounds: int = triton.cdiv(tiles * shares, multiprocessors(device))
        return rounds * (depth // shares + overhead)

    return min(range(1, max(1, min(MOST_SHARES, depth // PIECE)) + 1), key=cost)


def large(rows: int, width: int, depth: int) -> bool:
    """Whether a float32 product is worth taking its operands apart."""
    return rows * width * depth >= 2**31
