"""What is drawn and listed of a tensor's errors: how many are how large, and which elements are the worst."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .elements import exponents
from .statistics import Piece

EXACT = -4  # stands for no error at all; 2^-3 ulp and less are one bin
LOW, HIGH = -3, 36  # exponents of the errors in ulp
SMALLEST, LARGEST = -160, 160  # exponents of the true values; what lies outside is counted at the ends
ZERO = SMALLEST - 1  # stands for a true value of zero
SHOWN = 8  # worst elements that are kept


class Histogram:
    """Counts of errors by ⌊log2⌋ of the error in ulp and ⌊log2⌋ of the true value's size."""

    def __init__(self) -> None:
        self.counts = torch.zeros(LARGEST - ZERO + 1, HIGH - EXACT + 1, dtype=torch.int64)

    def look(self, piece: Piece) -> None:
        """At the next piece."""
        if not len(piece.elements):
            return
        errors = exponents(piece.elements.ulp)
        bins = torch.where(errors == -1023, EXACT, errors.clamp(LOW, HIGH)) - EXACT
        sizes = piece.elements.magnitude.clamp(SMALLEST, LARGEST).masked_fill_(piece.elements.true == 0, ZERO) - ZERO
        rows, columns = self.counts.shape
        self.counts += torch.bincount(sizes * columns + bins, minlength=rows * columns).view(rows, columns)

    def join(self, later: Histogram) -> None:
        """Add what another one saw."""
        self.counts += later.counts

    def by_error(self) -> list[tuple[int, int]]:
        """(exponent of the error in ulp, `EXACT` for none; how many), from the smallest to the largest there is."""
        totals = self.counts.sum(0).tolist()
        last = max((k for k, total in enumerate(totals) if total), default=0)
        return [(EXACT + k, total) for k, total in enumerate(totals[: last + 1])]

    def by_size(self) -> list[tuple[int, list[int]]]:
        """(exponent of the true values, `ZERO` of zeros, counts by error as in `by_error`), those without elements left
        out.
        """
        length = len(self.by_error())
        return [(ZERO + k, row[:length]) for k, row in enumerate(self.counts.tolist()) if any(row)]


class Bad(NamedTuple):
    """One element: its flat place, what was found and what is true, and the error in ulp of the true value."""

    place: int
    found: float
    true: float
    error: float
    ulp: float


class Worst:
    """The elements with the largest errors, those with the most ulp, and the first that are misplaced."""

    def __init__(self) -> None:
        self.by_error: list[Bad] = []
        self.by_ulp: list[Bad] = []
        self.misplaced: list[Bad] = []

    def look(self, piece: Piece) -> None:
        """At the next piece."""
        elements = piece.elements
        if piece.finite is not None and len(self.misplaced) < SHOWN:
            for k in piece.misplaced.nonzero()[: SHOWN - len(self.misplaced), 0].tolist():
                found, true = float(piece.found[k]), float(piece.true[k])
                self.misplaced.append(Bad(piece.start + k, found, true, torch.inf, torch.inf))
        if len(elements):
            self.by_error = self._longer(self.by_error, "error", piece, elements.error)
            self.by_ulp = self._longer(self.by_ulp, "ulp", piece, elements.ulp)

    def join(self, later: Worst) -> None:
        """Keep the worse ones of both."""
        self.misplaced = (self.misplaced + later.misplaced)[:SHOWN]
        self.by_error = _worst(self.by_error + later.by_error, "error")
        self.by_ulp = _worst(self.by_ulp + later.by_ulp, "ulp")

    def _longer(self, known: list[Bad], what: str, piece: Piece, values: Tensor) -> list[Bad]:
        least = getattr(known[-1], what) if len(known) == SHOWN else 0.0
        if float(values.max()) <= least:
            return known
        places = None if piece.finite is None else piece.finite.nonzero()[:, 0]
        elements, new = piece.elements, []
        for k in values.topk(min(SHOWN, len(values))).indices.tolist():
            if float(values[k]) > least:
                place = piece.start + (k if places is None else int(places[k]))
                numbers = (x[k] for x in (elements.found, elements.true, elements.error, elements.ulp))
                new.append(Bad(place, *map(float, numbers)))
        return _worst(known + new, what)


def _worst(known: list[Bad], what: str) -> list[Bad]:
    return sorted(known, key=lambda bad: (-getattr(bad, what), bad.place))[:SHOWN]
