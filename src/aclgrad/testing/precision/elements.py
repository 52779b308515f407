"""A piece of a result beside the same piece of the truth, and what every metric asks of them."""

from __future__ import annotations

from functools import cache, cached_property
from math import log2
from typing import NamedTuple

import torch
from torch import Tensor

_MANTISSA, _BIAS = 52, 1023  # of float64


class Precision(NamedTuple):
    """A floating-point type by two powers of two: of the spacing at one, and of the smallest normal number."""

    spacing: int
    smallest: int


@cache
def precision_of(dtype: torch.dtype) -> Precision:
    """The powers of a dtype.

    >>> precision_of(torch.float16)
    Precision(spacing=-10, smallest=-14)
    """
    kind = torch.finfo(dtype)
    return Precision(round(log2(kind.eps)), round(log2(kind.smallest_normal)))


def exponents(values: Tensor) -> Tensor:
    """⌊log2 x⌋ of non-negative float64 values [n], −1023 of zero and of subnormal ones; int64 [n].

    >>> exponents(torch.tensor([1.0, 1.5, 0.25, 0.0], dtype=torch.float64)).tolist()
    [0, 0, -2, -1023]
    """
    return (values.view(torch.int64) >> _MANTISSA) - _BIAS


def powers(exponent: Tensor) -> Tensor:
    """2^k of integers [n] from −1022 on, in float64.

    >>> powers(torch.tensor([0, -2, 3])).tolist()
    [1.0, 0.25, 8.0]
    """
    return ((exponent + _BIAS) << _MANTISSA).view(torch.float64)


class Elements:
    """Finite elements of a result [n] and of the truth [n], both in float64; `dtype` is the result's.

    What is derived from them is computed when it is first asked for.
    """

    def __init__(self, found: Tensor, true: Tensor, dtype: torch.dtype) -> None:
        self.found, self.true, self.dtype = found, true, dtype
        self.difference = found - true
        self._relative: dict[float, Tensor] = {}
        self._normal: dict[float, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.true)

    @cached_property
    def error(self) -> Tensor:
        """|found − true|."""
        return self.difference.abs()

    @cached_property
    def size(self) -> Tensor:
        """|true|."""
        return self.true.abs()

    def relative(self, guard: float) -> Tensor:
        """error / (|true| + guard)."""
        if guard not in self._relative:
            self._relative[guard] = self.error / (self.size + guard)
        return self._relative[guard]

    def above(self, limit: float) -> tuple[Tensor, Tensor]:
        """|true| > limit, as bools and as ones and zeros."""
        if limit not in self._normal:
            flags = self.size > limit
            self._normal[limit] = flags, flags.double()
        return self._normal[limit]

    @cached_property
    def magnitude(self) -> Tensor:
        """⌊log2 |true|⌋, not below the exponent of the type's smallest normal number."""
        return exponents(self.size).clamp_(min=precision_of(self.dtype).smallest)

    @cached_property
    def ulp(self) -> Tensor:
        """The error in units of the last place of the true value in the result's type."""
        spacing = (self.magnitude + precision_of(self.dtype).spacing).clamp_(min=-_BIAS + 1)
        return self.error / powers(spacing)

    @cached_property
    def ulp_of_zero_as_one(self) -> Tensor:
        """The same with a true zero taken for a one, as msprobe counts."""
        return torch.where(self.true == 0, self.error * 2.0 ** -precision_of(self.dtype).spacing, self.ulp)
