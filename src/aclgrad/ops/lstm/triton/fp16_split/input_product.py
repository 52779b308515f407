"""What a layer's input gives the gates of all steps: one large product, x @ w_ihᵀ.

Its sums are deep, and what they lose is never averaged away: a step starts from it. In float32 a deep product is
therefore made of split matrices, whose sums in the matrix units are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.devices import is_hopper
from aclgrad.gpu.products import LibraryProduct, multiply

from .products import FINE_SUM_LENGTH, Factor, worth_splitting
from .split import SplitMatrix, aligned

if TYPE_CHECKING:
    from .hopper_product import HopperProduct

SPLIT_DEPTH = 256
"""Depth from which a float32 sum, one term after another, is worse than a split product."""

FINE_DEPTH, FINEST_SUM_LENGTH = 512, 64
"""Depth below which sums are kept even shorter, since a float32 sum loses little there, too; how many terms the library
sums below it and at it."""


class InputProducts:
    """The split operands of input products in the workspace; layers of the same sizes share them."""

    def __init__(self, scratch: Scratch, device: torch.device, dtype: torch.dtype) -> None:
        self._scratch, self._device = scratch, device
        self._float32 = dtype == torch.float32
        self._hopper = self._float32 and is_hopper(device)
        self._split: dict[tuple[str, int, int, int], SplitMatrix] = {}

    def of(self, rows: int, width: int, depth: int, row_stride: int) -> InputProduct | None:
        """The product of a matrix [rows, depth], whose rows lie `row_stride` apart, and one [depth, width].

        None where the library multiplies them as they are.
        """
        if not self._float32 or (depth < SPLIT_DEPTH and not worth_splitting(rows, width, depth)):
            return None
        fine = depth < FINE_DEPTH
        x, w_ih = self._matrix("x", rows, depth, row_stride), self._matrix("w_ih", depth, width, width)
        hopper = None
        if self._hopper and rows and width:
            from .hopper_product import HopperProduct

            hopper = HopperProduct(
                (rows, width, depth), (aligned(depth), aligned(width)), transposed=False, split_k=1,
                device=self._device, fine=fine,
            )  # fmt: skip
        return InputProduct(
            x, w_ih, (depth, width), hopper, FINEST_SUM_LENGTH if depth <= FINE_DEPTH else FINE_SUM_LENGTH
        )

    def _matrix(self, operand: str, count: int, width: int, row_stride: int) -> SplitMatrix:
        key = (operand, count, width, row_stride)
        if key not in self._split:
            self._split[key] = SplitMatrix(
                self._scratch, self._device, count, width, row_stride, split_stride=aligned(width)
            )
        return self._split[key]


class InputProduct:
    """A product of float32 matrices that are split; `widths` are those of both."""

    def __init__(
        self, x: SplitMatrix, w_ih: SplitMatrix, widths: tuple[int, int], hopper: HopperProduct | None, length: int
    ) -> None:
        self._x, self._w_ih, self._widths, self._hopper, self._length = x, w_ih, widths, hopper, length

    @property
    def amaxes(self) -> tuple[Piece, Piece]:
        """Those of x and w_ih, by whose scales the result is multiplied."""
        return self._x.amax, self._w_ih.amax

    def __call__(self, out: torch.Tensor, x: torch.Tensor, w_ih: torch.Tensor, workspace: torch.Tensor) -> None:
        """Write x @ w_ih times both scales."""
        left, right = self._x.split(x, workspace), self._w_ih.split(w_ih, workspace)
        if self._hopper is not None and len(left) > 1:
            self._hopper(out, left, right)
        else:
            depth, width = self._widths
            factors = [part[:, :depth] for part in left], [part[:, :width] for part in right]
            for product in fine_products(*factors, out, self._length):
                multiply(product.out, product.a, product.b, add=product.adds)


def fine_products(a: Factor, b: Factor, out: torch.Tensor, length: int = FINE_SUM_LENGTH) -> Iterator[LibraryProduct]:
    """The products that write a @ b of split matrices; of two parts, matrix units sum only `length` terms at a time."""
    yield LibraryProduct(out, a[0], b[-1])
    if len(a) > 1:
        yield LibraryProduct(out, a[1], b[0], adds=True)
        for start in range(0, a[0].shape[1], length):
            yield LibraryProduct(out, a[0][:, start : start + length], b[0][start : start + length], adds=True)
