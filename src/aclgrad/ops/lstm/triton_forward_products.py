"""What a layer's input gives the gates of all steps: one large product.

Its sums are deep, and what they lose is never averaged away: a step starts from it. In float32 a deep product is
therefore made of halves, as in `triton_products`, whose sums begin anew now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...core.memory import Piece, Scratch
from ...gpu.products import multiply
from .triton_products import Operand, Parts, large, own_products

if TYPE_CHECKING:
    from .triton_matrix import HalvesProduct

DEEP = 256
"""Terms from which a sum of float32, one after another, is worse than one of halves; how many of these are summed."""

ALIGN = 8
"""Elements to which rows must be aligned for the kernel that makes products of halves in one launch."""


class Products:
    """Room for the parts of operands and for products of them; layers of the same sizes share it."""

    def __init__(self, scratch: Scratch, device: torch.device, dtype: torch.dtype) -> None:
        self._scratch, self._device = scratch, device
        self._single = dtype == torch.float32
        self._own = self._single and own_products(device)
        self._parts: dict[tuple[str, int, int, int], Parts] = {}

    def of(self, rows: int, width: int, depth: int, row: int) -> DeepProduct | None:
        """The product of a matrix [rows, depth], whose rows lie `row` apart, and one [depth, width].

        None where the library multiplies them as they are.
        """
        if not self._single or (depth < DEEP and not large(rows, width, depth)):
            return None
        parts = self._room("left", rows, depth, row), self._room("right", depth, width, width)
        halves = None
        if self._own and row % ALIGN == 0 and width % ALIGN == 0:
            from .triton_matrix import HalvesProduct

            halves = HalvesProduct((rows, width, depth), (row, width), stacked=False, shares=1, device=self._device)
        return DeepProduct(*parts, depth, halves)

    def _room(self, side: str, count: int, width: int, row: int) -> Parts:
        key = (side, count, width, row)
        if key not in self._parts:
            self._parts[key] = Parts(self._scratch, self._device, count, width, row)
        return self._parts[key]


class DeepProduct:
    """A product of float32 matrices by their parts."""

    def __init__(self, a: Parts, b: Parts, depth: int, halves: HalvesProduct | None) -> None:
        self._a, self._b, self._depth, self._halves = a, b, depth, halves

    @property
    def peaks(self) -> tuple[Piece, Piece]:
        """By which the result is scaled."""
        return self._a.peak, self._b.peak

    def __call__(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, workspace: torch.Tensor) -> None:
        """Write a @ b times both scales."""
        left, right = self._a.of(a, workspace), self._b.of(b, workspace)
        if self._halves is not None and len(left) > 1:
            self._halves(out, left, right)
        else:
            multiply_finely([part[:, : self._depth] for part in left], right, out)


def multiply_finely(a: Operand, b: Operand, out: torch.Tensor) -> None:
    """Write a @ b of matrices in one or two parts; matrix units sum so few terms of two parts that nothing is lost."""
    multiply(out, a[0], b[-1])
    if len(a) > 1:
        multiply(out, a[1], b[0], add=True)
        for start in range(0, a[0].shape[1], DEEP):
            multiply(out, a[0][:, start : start + DEEP], b[0][start : start + DEEP], add=True)
