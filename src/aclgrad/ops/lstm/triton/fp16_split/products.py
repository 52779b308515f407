"""Products of split matrices by the vendor's library.

Matrix units cut sums off instead of rounding them, always towards zero, which adds up along a deep product. The high
parts are therefore multiplied over a length of the depth at a time, and the results added with rounding. Where torch's
switch allows TF32, the high parts alone are as good, over the whole depth.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton

from aclgrad.gpu.devices import multiprocessors
from aclgrad.gpu.launch import ALIGNED
from aclgrad.gpu.products import multiply

Factor = Sequence[torch.Tensor]
"""A matrix as it is, or split into (high, low), or the high part alone."""

SUM_LENGTH = 512
"""Terms that a matrix unit may sum before the error is more than that of a float32 sum."""

ODD_SUM_LENGTH = 128
"""The same where a row of an operand begins at an odd address: the library's kernels for those cut off more often."""

FINE_SUM_LENGTH = 256
"""The same where all later steps inherit the error."""

TILE, HOPPER_TILE = (128, 256), (128, 128)
"""Rows and columns of a product that a multiprocessor makes at a time: the library's, and `hopper_product`'s."""

TILE_OVERHEAD, HOPPER_TILE_OVERHEAD = 1024, 256
"""Terms of the depth that the start and the end of a tile cost."""

MOST_SPLIT_K = 8
SPLIT_FROM = 2**31
"""Multiplications from which a float32 product is worth splitting its operands."""


def multiply_split(a: Factor, b: Factor, out: torch.Tensor) -> None:
    """Write a @ b, in float32 or the operands' own dtype.

    An output of three dimensions takes partial products that add up to it: the depth is cut into as many parts, which
    are multiplied side by side (split-K).
    """
    depth = a[0].shape[1]
    if not depth:
        out.zero_()
        return
    split_k = out.shape[0] if out.dim() > 2 else 1
    length_k = depth // split_k
    if split_k > 1:
        _multiply(
            [_cut_columns(part, split_k, length_k) for part in a],
            [_cut_rows(part, split_k, length_k) for part in b],
            out,
        )
        rest = split_k * length_k
        if rest < depth:
            _multiply([part[:, rest:] for part in a], [part[rest:] for part in b], out[0], add=True)
    else:
        _multiply(a, b, out.view(out.shape[-2:]))


def _multiply(a: Factor, b: Factor, out: torch.Tensor, *, add: bool = False) -> None:
    if len(a) == 1:
        multiply(out, a[0], b[0], add=add)
        return
    (high_a, low_a), (high_b, low_b) = a, b
    multiply(out, high_a, low_b, add=add)
    multiply(out, low_a, high_b, add=True)
    depth = high_a.shape[-1]
    most = SUM_LENGTH if _rows_are_aligned(high_a) and _rows_are_aligned(high_b) else ODD_SUM_LENGTH
    length = triton.cdiv(depth, triton.cdiv(depth, most))
    for start in range(0, depth, length):
        multiply(out, high_a[..., start : start + length], high_b[..., start : start + length, :], add=True)


def _rows_are_aligned(matrix: torch.Tensor) -> bool:
    """Whether all rows begin at addresses that the library's best kernels take; or columns, if those are gapless."""
    size = matrix.element_size()
    steps = [stride * size for stride in matrix.stride() if stride != 1]
    return all(place % ALIGNED == 0 for place in (matrix.data_ptr(), *steps))


def _cut_columns(matrix: torch.Tensor, count: int, width: int) -> torch.Tensor:
    """[count, rows, width]: columns that lie beside each other."""
    return matrix[:, : count * width].view(len(matrix), count, width).transpose(0, 1)


def _cut_rows(matrix: torch.Tensor, count: int, height: int) -> torch.Tensor:
    """[count, height, columns]: rows that lie below each other."""
    return matrix[: count * height].view(count, height, matrix.shape[1])


def best_split_k(rows: int, width: int, depth: int, device: torch.device, *, hopper: bool) -> int:
    """Into how many parts the depth of a split product is best cut, so that all of the device has work."""
    tile, overhead = (HOPPER_TILE, HOPPER_TILE_OVERHEAD) if hopper else (TILE, TILE_OVERHEAD)
    tiles: int = triton.cdiv(rows, tile[0]) * triton.cdiv(width, tile[1])

    def cost(split_k: int) -> int:
        rounds: int = triton.cdiv(tiles * split_k, multiprocessors(device))
        return rounds * (depth // split_k + overhead)

    return min(range(1, max(1, min(MOST_SPLIT_K, depth // SUM_LENGTH)) + 1), key=cost)


def worth_splitting(rows: int, width: int, depth: int) -> bool:
    """Whether a float32 product is worth splitting its operands."""
    return rows * width * depth >= SPLIT_FROM
