"""Matrices in the workspace that are split into a high and a low float16 part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.addresses import placed
from aclgrad.gpu.operands import NamedKernel, Operand
from aclgrad.gpu.products import allows_tf32

from .products import Factor
from .scale import BLOCK_COLUMNS, BLOCK_ROWS, find_amax, split

ALIGN = 8
"""Elements to which rows of a split matrix are aligned: the 16 bytes that copies into shared memory need."""


def aligned(width: int) -> int:
    """Elements from one row to the next, if rows of `width` elements are aligned."""
    return -(-width // ALIGN) * ALIGN


class Splitting:
    """The kernels that split a float32 matrix [count, width].

    Its rows lie `row_stride` apart, those of its parts `split_stride`.
    With `by_rows` it is to be multiplied with a matrix whose rows have scales of their own, row by row: it takes these
    scales off. With `twice` the high part is written twice.
    """

    def __init__(
        self,
        device: torch.device,
        shape: tuple[int, int],
        row_stride: int,
        split_stride: int,
        amax: Piece,
        *,
        by_rows: bool = False,
        twice: bool = False,
    ) -> None:
        count, width = shape
        self._amax = amax
        sizes, block = {"count": count, "width": width, "row_stride": row_stride}, {
            "ROWS": BLOCK_ROWS, "COLUMNS": BLOCK_COLUMNS,
        }  # fmt: skip
        down, across = triton.cdiv(count, BLOCK_ROWS), triton.cdiv(width, BLOCK_COLUMNS)
        half, x = torch.float16, Operand("x", torch.float32)
        row_amax = Operand("row_amax", torch.int32 if by_rows else None)
        self._find = NamedKernel(find_amax, (down,), device, (Operand.at("amax", amax), x, row_amax), sizes, block)
        self._split = {
            precise: NamedKernel(
                split, (down, across), device,
                (Operand("high", half), Operand("high_again", half if twice and precise else None),
                 Operand("low", half if precise else None), x, row_amax, Operand.at("amax", amax)),
                {**sizes, "split_stride": split_stride}, block,
            )
            for precise in (False, True)
        }  # fmt: skip

    def __call__(self, workspace: torch.Tensor, precise: bool, **given: Any) -> None:
        """Split `x` into `high` and, if precise, `low`."""
        self._amax.view(workspace).zero_()
        self._find(given, workspace)
        self._split[precise](given, workspace)


class SplitMatrix:
    """The parts of a float32 matrix [count, width] and its amax; see `Splitting`."""

    def __init__(
        self,
        scratch: Scratch,
        device: torch.device,
        count: int,
        width: int,
        row_stride: int,
        *,
        split_stride: int | None = None,
        by_rows: bool = False,
    ) -> None:
        stride = split_stride or row_stride
        self.high, self.low = (scratch.tensor((count, stride), torch.float16) for _ in range(2))
        self.amax = scratch.tensor((1,), torch.int32)
        self._splitting = Splitting(device, (count, width), row_stride, stride, self.amax, by_rows=by_rows)

    def split(self, matrix: torch.Tensor, workspace: torch.Tensor, row_amax: Any = None) -> Factor:
        """The parts of the matrix that a product needs; `row_amax` are those of the other matrix's rows."""
        factor = self.factor(workspace)
        low = factor[1] if len(factor) > 1 else None
        self._splitting(workspace, low is not None, high=factor[0], low=low, x=matrix, row_amax=row_amax)
        return factor

    def factor(self, workspace: torch.Tensor) -> Factor:
        """The parts that a product needs, whoever has written them."""
        high, low = self.high.view(workspace), self.low.view(workspace)
        return (high,) if allows_tf32() else (high, low)


def as_factor(split: SplitMatrix | None, matrix: torch.Tensor, workspace: torch.Tensor, row_amax: Any = None) -> Factor:
    """The matrix as `multiply_split` wants it."""
    return (matrix,) if split is None else split.split(matrix, workspace, row_amax)


class SplitWeights:
    """w_hh [D, H, 4H] split: a unit's weights lie as [high | low] or, `twice`, as [high | high | low]."""

    def __init__(self, directions: int, hidden: int, device: torch.device, scratch: Scratch, *, twice: bool) -> None:
        self.width = 4 * hidden
        self._copies = 3 if twice else 2
        self.parts = scratch.tensor((directions, hidden, self._copies * self.width), torch.float16)
        self.amax = scratch.tensor((1,), torch.int32)
        self._splitting = Splitting(
            device, (directions * hidden, self.width), self.width, self._copies * self.width, self.amax, twice=twice
        )

    def __call__(self, workspace: torch.Tensor, w_hh: Any, *, precise: bool) -> None:
        """Split w_hh; without precision the low part is left out."""
        high, *again, low = self._places(workspace)
        self._splitting(workspace, precise, high=high, high_again=again[0] if again else None, low=low, x=w_hh)

    def _places(self, workspace: torch.Tensor) -> Iterator[Any]:
        return (placed(self.parts, workspace, k * self.width) for k in range(self._copies))
