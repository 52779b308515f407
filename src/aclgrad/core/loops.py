"""The fewest loops over operands of any layout, in the order memory likes, from metadata alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

FAR = 64
"""A stride of this many elements is as bad as any longer one: each element is on a cache line of its own."""

Strides = tuple[int, ...]
AnyLoops = TypeVar("AnyLoops", bound="Loops")


@dataclass(frozen=True)
class Loops:
    """Nested loops, outermost first: `sizes`, and for each operand its `strides` in elements."""

    sizes: tuple[int, ...]
    strides: tuple[Strides, ...]

    @classmethod
    def over(cls: type[AnyLoops], shape: Sequence[int], *strides: Sequence[int]) -> AnyLoops:
        """The fewest loops that visit every index of `shape`; the i-th operand has the i-th strides."""
        dims = [(size, steps) for size, *steps in zip(shape, *strides, strict=True) if size != 1]
        if any(size == 0 for size, _ in dims):
            dims = [(0, [1] * len(strides))]  # as if there were something: no kernel of its own
        dims.sort(key=lambda dim: (_cost(dim[1]), sum(dim[1])), reverse=True)
        merged: list[tuple[int, list[int]]] = []
        for size, steps in dims:
            if merged and merged[-1][1] == [step * size for step in steps]:
                merged[-1] = (merged[-1][0] * size, steps)
            else:
                merged.append((size, steps))
        sizes = tuple(size for size, _ in merged)
        return cls(sizes, tuple(tuple(steps[k] for _, steps in merged) for k in range(len(strides))))

    @property
    def count(self) -> int:
        """How many elements are visited."""
        return math.prod(self.sizes)

    @property
    def flat(self) -> bool:
        """Whether every operand is one gapless run of elements, all in the same order."""
        return self.count == 0 or all(steps in ((), (1,)) for steps in self.strides)

    @property
    def max_offset(self) -> int:
        """The furthest that any operand's element lies behind its first one."""
        return max(
            sum((size - 1) * step for size, step in zip(self.sizes, steps, strict=True)) for steps in self.strides
        )

    @property
    def crossed(self) -> bool:
        """Whether an operand is contiguous along the second innermost loop rather than the innermost."""
        return len(self.sizes) > 1 and any(steps[-1] > 1 and steps[-2] < steps[-1] for steps in self.strides)


def _cost(steps: Sequence[int]) -> int:
    return sum(min(step, FAR) for step in steps)
