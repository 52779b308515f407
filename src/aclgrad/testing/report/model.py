"""What a verification found out, output by output."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ...core.errors import InvalidArgument
from ...core.meta import dtype_name
from ..precision.kinds import RULE, Criterion
from ..precision.standards import Judgement

if TYPE_CHECKING:
    from ...core.spec import OpSpec
    from ..precision.places import Places
    from ..precision.statistics import Statistics
    from ..precision.watchers import Bad, Histogram, Worst

RIGHT, IMPRECISE, INCOMPARABLE = 0, 1, 2
"""Exit codes."""

FEW = 6  # calls that are shown in full
ROUNDED = 0.5  # ulp that the best rounding may be off


class Maker(NamedTuple):
    """An element of an input that a bad element was made of."""

    where: str  # gradOut[3, 0]
    value: float


@dataclass
class OutputReport:
    """One output tensor. Where it could not be compared, `problem` says why, and there is nothing else."""

    name: str  # the document's, with the index of a list's member
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    problem: str | None = None
    judgements: dict[str, Judgement] = field(default_factory=dict)  # by the standards' names
    found: Statistics | None = None
    naive: Statistics | None = None
    second: Statistics | None = None
    unequal: int = 0  # elements, of integers and bools
    histogram: Histogram | None = None
    worst: Worst | None = None
    places: Places | None = None
    makers: dict[int, list[Maker]] = field(default_factory=dict)  # of the worst elements, by their flat places

    def index(self, place: int) -> tuple[int, ...]:
        """The index of an element from its flat place."""
        index = []
        for size in reversed(self.shape):
            place, at = divmod(place, size)
            index.append(at)
        return tuple(reversed(index))

    @property
    def allowed(self) -> float:
        """The largest error that our rule allows, whatever the standard."""
        criteria = self.judgements[RULE].criteria if self.judgements else ()
        return next((each.limit for each in criteria if each.what == "largest error"), 0.0)

    def ok(self, standard: str) -> bool:
        """Whether it was compared, and is precise enough by a standard."""
        return self.problem is None and self.judgements[standard].ok is True

    def excess(self, standard: str) -> float:
        """By what factor it is worse than a standard allows."""
        if self.problem is not None:
            return inf
        judgement = self.judgements[standard]
        found = [each for each in judgement.criteria if not each.ok]
        return max((each.value / each.limit if each.limit > 0 else inf for each in found), default=0.0)

    def __str__(self) -> str:
        kind = "" if self.dtype is None else f" {dtype_name(self.dtype)}{list(self.shape)}"
        return f"{self.name}{kind}"


@dataclass
class CallReport:
    """One call: its arguments in words, its outputs, and what kept it from being compared as a whole.

    Where a kernel is tried in many ways, `check` says what was looked at, and `faults` what it did wrong besides.
    """

    name: str
    arguments: dict[str, str] = field(default_factory=dict)
    outputs: list[OutputReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    check: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # which are no trouble

    def ok(self, standard: str) -> bool:
        """Whether nothing is wrong with it."""
        return not self.troubles and not self.faults and all(each.ok(standard) for each in self.outputs)

    def excess(self, standard: str) -> float:
        """By what factor its worst output is worse than a standard allows."""
        return max((each.excess(standard) for each in self.outputs), default=0.0)

    @property
    def troubles(self) -> list[str]:
        """Everything that could not be compared."""
        return [*self.problems, *(f"{each.name}: {each.problem}" for each in self.outputs if each.problem)]


@dataclass
class Report:
    """The verdict on an operator's outputs by a standard; those of the other standards are there as well.

    It shows itself in a terminal (`show`) or in a notebook, and is written as html, csv, json or junit xml (`write`).
    """

    operator: str
    aclnn: str
    standard: str
    level: str
    calls: list[CallReport] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # checks, and why

    @property
    def wrong(self) -> list[CallReport]:
        """The calls that are not right."""
        return [call for call in self.calls if not call.ok(self.standard)]

    @staticmethod
    def of_fault(spec: OpSpec, standard: str, level: str, fault: str) -> Report:
        """The report where there is nothing to compare at all."""
        return Report(spec.name, spec.aclnn, standard, level, [CallReport("", problems=[fault])])

    @property
    def tally(self) -> list[tuple[str, int, int]]:
        """(check, calls, those that are wrong) of every check; nothing where there are none."""
        checks = dict.fromkeys(call.check for call in self.calls if call.check)
        wrong = Counter(call.check for call in self.wrong)
        return [(check, sum(call.check == check for call in self.calls), wrong[check]) for check in checks]

    @property
    def shown(self) -> list[CallReport]:
        """The calls to show in full: all, or of many the wrong ones, the worst of each check first."""
        if len(self.calls) <= FEW and not self.tally:
            return self.calls
        by_check: dict[str, list[CallReport]] = {}
        for call in sorted(self.wrong, key=lambda call: -call.excess(self.standard)):
            by_check.setdefault(call.check, []).append(call)
        in_turn = [call for calls in zip_longest(*by_check.values()) for call in calls if call is not None]
        return in_turn[:FEW]

    @property
    def exit_code(self) -> int:
        """0 right, 1 not precise enough, 2 not comparable: something is missing, not as it should be, or too much."""
        outputs = [each for call in self.calls for each in call.outputs]
        unjudged = [each for each in outputs if each.problem is None and each.judgements[self.standard].ok is None]
        if not (outputs or self.tally) or unjudged or any(call.troubles for call in self.calls):
            return INCOMPARABLE
        return IMPRECISE if self.wrong else RIGHT

    @property
    def ok(self) -> bool:
        """Whether every output is there and precise enough."""
        return self.exit_code == RIGHT

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if any(call.faults for call in self.calls):
            return "wrong"
        return ("right", "not precise enough", "cannot compare")[self.exit_code]

    def show(self) -> None:
        """Print the verdicts and the worst elements to the terminal; in a notebook, show the page."""
        if _in_notebook():
            from IPython.display import display

            display(self)
            return
        from .terminal import show

        show(self)

    def write(self, path: Path | str) -> Path:
        """Write the report into a file: .html, .csv (msprobe's columns), .json or .xml (junit)."""
        from .forms import FORMS

        path = Path(path)
        form = FORMS.get(path.suffix)
        if form is None:
            known = ", ".join(FORMS)
            raise InvalidArgument(f"report is {path.name!r}, expected a name that ends with {known}", "report")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(form(self), encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        from .html import embedded

        return embedded(self)


def _in_notebook() -> bool:
    """Whether what is displayed ends up on a page."""
    started = sys.modules.get("IPython")
    shell = None if started is None else started.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def worst_of(output: OutputReport) -> list[Bad]:
    """The elements to look at first: misplaced ones, then the largest errors, then the most ulp; each once.

    What is rounded as well as can be is left out, unless there is nothing else.
    """
    if output.worst is None:
        return []
    found = [*output.worst.misplaced, *output.worst.by_error, *output.worst.by_ulp]
    distinct = list({bad.place: bad for bad in found}.values())
    return [bad for bad in distinct if output.unequal or bad.ulp > ROUNDED] or distinct


def broken(judgement: Judgement) -> Sequence[Criterion]:
    """What a judgement failed by; nothing if it did not."""
    return () if judgement.ok is not False else judgement.broken


def as_number(value: Any) -> float | None:
    """A metric for formats that know no infinity."""
    number = float(value)
    return number if number - number == 0 else None
