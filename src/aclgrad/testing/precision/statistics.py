"""A tensor measured against the truth, piece by piece, by as many threads as torch has.

A piece is small enough to stay in a core's cache, and for torch to leave it to the thread that asks. So memory does not
grow with the tensors, which may be files that are mapped, and the sums are the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from .elements import Elements
from .measures import BASIC, Measure, Parts

PIECE = 32_000  # elements, fewer than torch would divide among threads
SHARE = 1 << 20  # elements that a thread takes at a time
ON_DEVICE = 1 << 24  # elements of a piece where a GPU works on it

KINDS = ("finite", "+inf", "-inf", "nan")

Flat: TypeAlias = "Callable[[int, int], Tensor]"
"""A tensor's elements in row-major order, from one index to another."""


def flat(tensor: Tensor) -> Flat:
    """The elements of a tensor that is in memory, or in a file that is mapped."""
    line = tensor.detach().reshape(-1)
    return lambda start, stop: line[start:stop]


class Piece(NamedTuple):
    """Elements from the flat index `start` on. Those that are finite in both are also in `elements`."""

    start: int
    found: Tensor  # [n] in the result's type
    true: Tensor  # [n] in float64
    finite: Tensor | None  # [n] bools; None: all are
    elements: Elements

    def spread(self, values: Tensor, elsewhere: Tensor | float) -> Tensor:
        """A value for each finite element, as one for each element; the others get another."""
        if self.finite is None:
            return values
        return torch.zeros(len(self.true), dtype=values.dtype).add_(elsewhere).masked_scatter_(self.finite, values)

    @property
    def misplaced(self) -> Tensor:
        """[n]: which are NaN or infinite where the truth is not, or the reverse."""
        return kinds(self.found) != kinds(self.true.to(self.found.dtype))


class Watcher(Protocol):
    """What else looks at the pieces: places, the worst elements, a histogram."""

    def look(self, piece: Piece) -> None:
        """At the next piece."""

    def join(self, later: Any) -> None:
        """Take over what a watcher of the same kind saw in later pieces."""


@dataclass
class Statistics:
    """Metrics of a tensor by their texts, and how many elements of one kind (finite, ±Inf, NaN) stand for another."""

    values: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)  # "nan where finite is true": how many

    def __getitem__(self, measure: Measure) -> float:
        return self.values[str(measure)]

    @property
    def misplaced(self) -> int:
        """Elements that are NaN or infinite where the truth is not, or the reverse."""
        return sum(count for text, count in self.kinds.items() if not _is_right(text))


def measure(
    found: Flat,
    true: Flat,
    numel: int,
    dtype: torch.dtype,
    measures: Iterable[Measure] = BASIC,
    watchers: Callable[[], Sequence[Watcher]] = tuple,
) -> tuple[Statistics, Sequence[Watcher]]:
    """Metrics of a result of a floating-point type against the truth in float64, and the watchers that saw it all.

    >>> found, true = torch.tensor([1.0, 2.5, float("nan")]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    >>> statistics, _ = measure(flat(found), flat(true), 3, torch.float32)
    >>> statistics.values["max_error()"], statistics.kinds
    (0.5, {'nan where finite is true': 1})
    """
    wanted = list(dict.fromkeys(measures))
    share, piece = (SHARE, PIECE) if found(0, 0).is_cpu else (ON_DEVICE, ON_DEVICE)

    def take(start: int) -> _Taken:
        taken = _Taken({}, torch.zeros(len(KINDS) ** 2, dtype=torch.int64, device="cpu"), watchers())
        for first in range(start, min(start + share, numel), piece):
            stop = min(first + piece, start + share, numel)
            _take(taken, first, found(first, stop), true(first, stop), dtype, wanted)
        return taken

    starts = range(0, max(numel, 1), share)
    if len(starts) == 1:
        whole = take(0)
    else:
        with ThreadPoolExecutor(torch.get_num_threads() if share == SHARE else 1) as threads:
            whole, *others = threads.map(take, starts)
        for other in others:
            whole.join(other)
    values = {str(item): item.value(whole.parts.get(item)) for item in wanted}
    counts = {
        f"{KINDS[code % len(KINDS)]} where {KINDS[code // len(KINDS)]} is true": count
        for code, count in enumerate(whole.kinds.tolist())
        if code and count
    }
    return Statistics(values, counts), whole.watchers


def kinds(values: Tensor) -> Tensor:
    """[n]: the index in `KINDS` of each value."""
    return values.isnan() * 3 + (values == torch.inf) + (values == -torch.inf) * 2


class _Taken(NamedTuple):
    """What a thread found out."""

    parts: dict[Measure, Parts | None]
    kinds: Tensor
    watchers: Sequence[Watcher]

    def join(self, later: _Taken) -> None:
        for item, parts in later.parts.items():
            self.parts[item] = item.merged(self.parts.get(item), parts)
        self.kinds.add_(later.kinds)
        for mine, other in zip(self.watchers, later.watchers, strict=True):
            mine.join(other)


def _take(
    taken: _Taken, start: int, found: Tensor, true: Tensor, dtype: torch.dtype, measures: Sequence[Measure]
) -> None:
    rounded = true if dtype == true.dtype else true.to(dtype)
    finite = found.isfinite().logical_and_(rounded.isfinite())
    if finite.all():
        piece = Piece(start, found, true, None, Elements(found.double(), true, dtype))
    else:
        codes = kinds(rounded) * len(KINDS) + kinds(found)
        taken.kinds.add_(torch.bincount(codes, minlength=len(KINDS) ** 2).cpu())
        piece = Piece(start, found, true, finite, Elements(found[finite].double(), true[finite], dtype))
    if len(piece.elements):
        for item in measures:
            taken.parts[item] = item.merged(taken.parts.get(item), item.parts(piece.elements))
    for watcher in taken.watchers:
        watcher.look(piece)


def _is_right(text: str) -> bool:
    found, _, true = text.removesuffix(" is true").partition(" where ")
    return found == true
