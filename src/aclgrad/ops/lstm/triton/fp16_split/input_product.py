"""What a layer's input gives the gates of all steps: one large product.

Its sums are deep, and what they lose is never averaged away: a step starts from it. In float32 a deep product is
therefore made of halves, as in `triton_products`, whose sums begin anew now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from aclgrad.core.memory import Piece, Scratch
from aclgrad.gpu.launch import is_hopper
from aclgrad.gpu.products import multiply

from .products import Operand, Parts, large

if TYPE_CHECKING:
    from .hopper_product import HalvesProduct

DEEP = 256
"""Terms from which a sum of float32, one after another, is worse than one of halves; how many of these are summed."""

FINE, FINE_PIECE = 512, 64
"""Depth below which sums of halves begin anew more often, since a float32 sum loses little there, too; how many terms
the library sums below it and at it."""

ALIGN = 8
"""Elements to which rows of halves are aligned, for the kernel that multiplies them in one launch."""


class Products:
    """Room for the parts of operands and for products of them; layers of the same sizes share it."""

    def __init__(self, scratch: Scratch, device: torch.device, dtype: torch.dtype) -> None:
        self._scratch, self._device = scratch, device
        self._single = dtype == torch.float32
        self._own = self._single and is_hopper(device)
        self._parts: dict[tuple[str, int, int, int], Parts] = {}

    def of(self, rows: int, width: int, depth: int, row: int) -> DeepProduct | None:
        """The product of a matrix [rows, depth], whose rows lie `row` apart, and one [depth, width].

        None where the library multiplies them as they are.
        """
        if not self._single or (depth < DEEP and not large(rows, width, depth)):
            return None
        fine = depth < FINE
        left, right = self._room("left", rows, depth, row), self._room("right", depth, width, width)
        halves = None
        if self._own and rows and width:
            from .hopper_product import HalvesProduct

            halves = HalvesProduct(
                (rows, width, depth), (_aligned(depth), _aligned(width)), stacked=False, shares=1, device=self._device,
                fine=fine,
            )  # fmt: skip
        return DeepProduct(left, right, (depth, width), halves, FINE_PIECE if depth <= FINE else DEEP)

    def _room(self, side: str, count: int, width: int, row: int) -> Parts:
        key = (side, count, width, row)
        if key not in self._parts:
            self._parts[key] = Parts(self._scratch, self._device, count, width, row, into=_aligned(width))
        return self._parts[key]


class DeepProduct:
    """A product of float32 matrices by their parts; `widths` are those of both."""

    def __init__(self, a: Parts, b: Parts, widths: tuple[int, int], halves: HalvesProduct | None, piece: int) -> None:
        self._a, self._b, self._widths, self._halves, self._piece = a, b, widths, halves, piece

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
            depth, width = self._widths
            multiply_finely([part[:, :depth] for part in left], [part[:, :width] for part in right], out, self._piece)


def multiply_finely(a: Operand, b: Operand, out: torch.Tensor, piece: int = DEEP) -> None:
    """Write a @ b of matrices in one or two parts; of two, matrix units sum only a piece of the depth at a time."""
    multiply(out, a[0], b[-1])
    if len(a) > 1:
        multiply(out, a[1], b[0], add=True)
        for start in range(0, a[0].shape[1], piece):
            multiply(out, a[0][:, start : start + piece], b[0][start : start + piece], add=True)


def _aligned(width: int) -> int:
    """Elements from one row of halves to the next."""
    return -(-width // ALIGN) * ALIGN
