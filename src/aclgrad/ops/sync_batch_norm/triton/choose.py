"""How batches are cut: what a program takes, by shape, layout and device alone.

`ElementwiseCut` is for the operators that compute every element, `ReductionCut` for those that sum over channels. What
they decide does not depend on addresses, so that the bits are the same at every call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import triton

from aclgrad.core.loops import Loops
from aclgrad.core.meta import Meta
from aclgrad.gpu.devices import multiprocessors
from aclgrad.gpu.launch import few
from aclgrad.gpu.strided import INT32

THREADS = 128  # of a program
WIDEST = 16  # bytes that a thread loads at once

# Of elements
MOST_ROWS = 8  # of a program
MANY_PROGRAMS = 8  # on a multiprocessor: where there would be fewer, each takes fewer rows
FEW_LEFT_OVER = 32  # programs along a row whose last one is not full, so that its idle threads do not count
ALIGNMENT = 16  # elements; rows start where accesses may be wide
FEW_COUNTS = 32  # elements of a counter: fewer are as many, where the batch is small
SHORT_COUNTER = 1024  # elements that every program may add up for itself

# Of channels
AT_ONCE = 4  # rows that a thread asks for before it adds up the first
RESIDENT = 7  # programs of a multiprocessor: with one more, registers are short
RESIDENT_REGISTERS = 65536 // (RESIDENT * THREADS) // 8 * 8  # of a thread, so that all are resident
MOST_GROUPED, ENOUGH_GROUPED = 64, 16  # columns of one channel that a program adds up itself
LONG_PLANE = 256  # columns of a channel, from which on strips may end with it: few threads are idle at its end
FOLD, LONG_FOLD = 1024, 8192  # results of a channel, or of several, that are united at a time
FEW_COLUMNS, FEW_RESULTS = 64, (64, 4)  # the same of all batches of few elements, so that they have few kernels
FEW_CHANNELS = 1024  # so few that more of the device has work if programs take fewer channels and more of their results
PROCESSES, CHANNELS = (8, 32), 16  # that a program takes at a time where it unites the statistics of processes


class ElementwiseCut(NamedTuple):
    """A matrix of rows of some width, and what a program takes: its rows, how many at a time, its columns.

    A group of columns belongs to one channel.
    """

    width: int
    height: int
    rows: int
    columns: int
    group: int


def elementwise_cut(total: int, period: int, inner: int, x: Meta) -> ElementwiseCut:
    """The matrix of `total` elements whose channels recur with a period and have `inner` elements side by side."""
    group = math.gcd(inner, WIDEST // x.itemsize)
    rows, columns = (2, THREADS * group) if group * x.itemsize == WIDEST else (4, 4 * THREADS)
    width = math.lcm(period, ALIGNMENT)
    full, enough = math.lcm(width, columns), FEW_LEFT_OVER * columns
    width = full if full <= enough else width * max(1, enough // width)
    height = MOST_ROWS
    while height > rows and total < height * columns * MANY_PROGRAMS * multiprocessors(x.device):
        height //= 2
    return ElementwiseCut(width, height, rows, columns, group)


@dataclass(frozen=True)
class ReductionCut:
    """How batches [N, C, …] of one shape are seen as a matrix, and cut."""

    channels: int
    inner: int  # columns of a channel
    group: int  # of those that a program adds up
    rows: int
    height: int  # rows of a block
    blocks: int
    strips: int
    small: bool  # of few elements
    numbers: dict[str, Any]  # what kernels take: see `moments`
    constants: dict[str, Any]

    @staticmethod
    def of(*batches: Meta) -> ReductionCut:
        """By shape, layout and device."""
        x = batches[-1]
        channels, across = x.shape[1], [meta.strides[1] for meta in batches]
        rest = [dim for dim in range(x.rank) if dim != 1]
        loops = Loops.over([x.shape[d] for d in rest], *[[meta.strides[d] for d in rest] for meta in batches])
        sizes, strides = list(loops.sizes), [list(steps) for steps in loops.strides]
        planes = bool(sizes) and (channels == 1 or strides[-1][-1] < across[-1])
        inner = sizes.pop() if planes else 1
        inside = [steps.pop() if planes else 1 for steps in strides]
        rows, width = math.prod(sizes), channels * inner

        vector, small = WIDEST // x.itemsize, few(x.numel)
        columns = FEW_COLUMNS if small else min(triton.next_power_of_2(max(1, width)), THREADS * vector)
        group = 1 if small else math.gcd(inner, columns, MOST_GROUPED)
        split = inner > 1 if small else inner >= LONG_PLANE and group < ENOUGH_GROUPED
        if split:
            columns = group = columns if small else min(triton.next_power_of_2(inner), THREADS * vector)
        strips = channels * triton.cdiv(inner, columns) if split else triton.cdiv(width, columns)
        at_once = THREADS * vector // columns
        blocks = max(1, min(RESIDENT * multiprocessors(x.device) // max(1, strips), rows // (at_once * AT_ONCE)))
        height = max(1, triton.cdiv(rows, blocks))
        blocks = triton.cdiv(rows, height)
        numbers = {
            "strips": strips,
            "inner": inner,
            "width": width,
            "rows": rows,
            "height": height,
            "results": strips if split else width // group,
            "sizes": (1, *reversed(sizes)),
            "row_strides": tuple((0, *reversed(steps)) for steps in strides),
            "column_strides": tuple(zip(inside, across, strict=True)),
        }
        whole = not small and (inner % columns == 0 if split else width % columns == 0)
        constants = {
            "ROWS": at_once, "COLUMNS": columns, "GROUP": group, "AT_ONCE": AT_ONCE,
            "FLAT": not small
            and all(step == 1 for step in inside)
            and all(step == inner or channels == 1 for step in across),
            "SPLIT": split,
            "FULL": whole and rows % height == 0 and height % (at_once * AT_ONCE) == 0,
            "LONG": any(meta.span // meta.itemsize >= INT32 for meta in batches),
        }  # fmt: skip
        return ReductionCut(channels, inner, group, rows, height, blocks, strips, small, numbers, constants)

    @property
    def parts(self) -> int:
        """How many results a channel has in each block."""
        return -(-self.inner // self.group)

    @property
    def results(self) -> int:
        """How many results there are; memory for one if there are none."""
        return max(1, self.blocks * self.channels * self.parts)

    @property
    def fold(self) -> tuple[int, dict[str, int], int]:
        """(programs, results and channels that each takes at a time, its warps) of the second launch."""
        if self.small:
            lines, together = FEW_RESULTS
            return triton.cdiv(self.channels, together), {"LINES": lines, "CHANNELS": together}, 4
        some = self.channels < FEW_CHANNELS
        together = 1 if self.parts > 1 else 4 if some else 8
        most = LONG_FOLD if some and self.parts == 1 else FOLD
        lines = min(most // together, triton.next_power_of_2(max(1, self.blocks * self.parts)))
        warps = 8 if lines * together > FOLD else 4
        return triton.cdiv(self.channels, together), {"LINES": lines, "CHANNELS": together}, warps
