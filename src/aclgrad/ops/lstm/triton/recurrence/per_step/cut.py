"""How the product of a step is made where every step is a launch of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import torch
import triton

from ....dims import LstmDims

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


def per_step_backward(dims: LstmDims, dtype: torch.dtype) -> Iterator[PerStep]:
    """Those that can run the gradient."""
    yield PerStep(Product.KERNEL)
    count = partials(4 * dims.H) if dtype == torch.float32 and 0 < dims.H <= MOST_SPLIT_UNITS else None
    if count is not None:
        yield PerStep(Product.SPLIT_LIBRARY, count)
    elif dims.N and dims.H:
        yield PerStep(Product.LIBRARY)


def per_step_forward(dims: LstmDims) -> Iterator[PerStep]:
    """Those that can run the forward pass."""
    yield PerStep(Product.KERNEL)
    if dims.N and dims.H:
        yield PerStep(Product.LIBRARY)


def partials(depth: int) -> int | None:
    """Into how many partial products of equal, aligned length the depth is cut; None if there is no good number."""
    counts = range(max(1, triton.cdiv(depth, LONGEST_PARTIAL)), MOST_PARTIALS + 1)
    good = [count for count in counts if depth % (count * PARTIAL_ALIGN) == 0]
    return next((count for count in good if count * PARTIAL_LENGTH >= depth), good[-1] if good else None)
