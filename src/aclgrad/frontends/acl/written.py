"""Which bytes of device memory something has been written to: how a checked run finds reads of what nobody wrote.

A block counts in bytes from its start. Work counts when it is submitted: whether it is ordered rightly is another
question, which `ordering` answers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.meta import Meta
from .boundary import remark
from .findings import Kind

if TYPE_CHECKING:
    from .blocks import Block

MOST_RUNS = 1 << 12
"""Of a tensor with more pieces than this only its whole range is looked at."""


class Written:
    """A set of byte ranges that do not meet.

    >>> ranges = Written()
    >>> ranges.add(0, 8), ranges.add(12, 16), ranges.first_gap(4, 8), ranges.first_gap(4, 14)
    (None, None, None, 8)
    >>> ranges.add(6, 12), ranges.first_gap(0, 16), ranges.first_gap(0, 17)
    (None, None, 16)
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Something is written there."""
        if self.first_gap(start, end) is None:
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def first_gap(self, start: int, end: int) -> int | None:
        """The first byte of a range that was not written to; None if there is none."""
        k = bisect_right(self._starts, start) - 1
        if k < 0 or self._ends[k] <= start:
            return start
        return None if self._ends[k] >= end else self._ends[k]


def read(block: Block, address: int, nbytes: int, what: str) -> bool:
    """Bytes of a block are about to be read. True if all of them were written."""
    start = address - block.address
    gap = block.written.first_gap(start, min(start + nbytes, block.size)) if nbytes else None
    if gap is not None:
        remark(
            Kind.UNINITIALISED_READ,
            f"{what} reads {block.address + gap:#x}, {gap} bytes into a block of {block.size}: nobody has written it",
        )
    return gap is None


def read_tensor(block: Block, address: int, meta: Meta, what: str, *, is_dense: bool) -> bool:
    """Like `read` for a tensor whose first element is at an address; of one with gaps, only what it covers counts."""
    if is_dense:
        return read(block, address, meta.span, what)
    size, offsets = _runs(meta)
    start = address - block.address
    for offset in offsets:
        if block.written.first_gap(start + offset, start + offset + size) is not None:
            return read(block, address + offset, size, what)
    return True


def wrote(block: Block, address: int, nbytes: int) -> None:
    """Bytes of a block are about to be written."""
    block.written.add(address - block.address, address - block.address + nbytes)


def _runs(meta: Meta) -> tuple[int, Iterator[int]]:
    """The bytes of a contiguous run, and where the runs begin."""
    sizes: list[tuple[int, int]] = []
    run = meta.itemsize
    for extent, stride in sorted(zip(meta.shape, meta.strides, strict=True), key=lambda pair: pair[1]):
        if extent == 1 or stride == 0:
            continue
        if not sizes and stride * meta.itemsize == run:
            run *= extent
        else:
            sizes.append((extent, stride * meta.itemsize))
    count = 1
    for extent, _ in sizes:
        count *= extent
    return run, _offsets(sizes) if count <= MOST_RUNS else iter(())


def _offsets(sizes: Sequence[tuple[int, int]]) -> Iterator[int]:
    if not sizes:
        yield 0
        return
    extent, step = sizes[-1]
    for rest in _offsets(sizes[:-1]):
        for k in range(extent):
            yield rest + k * step
