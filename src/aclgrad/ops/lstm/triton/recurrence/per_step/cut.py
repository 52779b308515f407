"""How the product of a step is made where every step is a launch of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
import triton

from aclgrad.gpu.launch import INTERPRETING

from ....dims import LstmDims

BACKWARD_LIBRARY_ROWS = 32
FORWARD_LIBRARY_ROWS = {1: 512, 2: 192}
"""Rows of a batch from which the library multiplies; forward by the number of parts that operands are split into."""

MOST_SPLIT_UNITS = 4096
"""Hidden units of a row that a program can have at once."""

PARTIAL_LENGTH, LONGEST_PARTIAL, MOST_PARTIALS = 256, 512, 32
"""Terms of a partial product if possible, and at most; how many there may be. All later steps inherit its errors."""

PARTIAL_ALIGN = 8
"""Elements to which partial products are aligned."""


class Product(Enum):
    """Who multiplies."""

    KERNEL = "in the kernel"
    LIBRARY = "by the library"
    SPLIT_LIBRARY = "split, by the library"


@dataclass(frozen=True)
class PerStep:
    """A launch per step. A split product of the gradient is the sum of `partials` for each pair of parts."""

    product: Product
    partials: int = 1

    name = "per step"

    def describe(self) -> str:
        """In words."""
        return f"a launch per step, products {self.product.value}"


def backward(dims: LstmDims, dtype: torch.dtype) -> PerStep:
    """For the gradient."""
    if dtype == torch.float32 and dims.N >= BACKWARD_LIBRARY_ROWS and 0 < dims.H <= MOST_SPLIT_UNITS:
        count = partials(4 * dims.H)
        if count is not None:
            return PerStep(Product.SPLIT_LIBRARY, count)
    by_library = not INTERPRETING and dims.N >= BACKWARD_LIBRARY_ROWS
    return PerStep(Product.LIBRARY if by_library else Product.KERNEL)


def forward(dims: LstmDims, split: int) -> PerStep:
    """For the forward pass; operands are split into so many parts."""
    return PerStep(Product.LIBRARY if FORWARD_LIBRARY_ROWS[split] <= dims.N else Product.KERNEL)


def partials(depth: int) -> int | None:
    """Into how many partial products of equal, aligned length the depth is cut; None if there is no good number."""
    counts = range(max(1, triton.cdiv(depth, LONGEST_PARTIAL)), MOST_PARTIALS + 1)
    good = [count for count in counts if depth % (count * PARTIAL_ALIGN) == 0]
    return next((count for count in good if count * PARTIAL_LENGTH >= depth), good[-1] if good else None)
