"""What kinds of standards compare: metrics with limits, or with those of a second benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ..tolerance import verdict
from . import measures as of
from .measures import ALL, Measure
from .statistics import Statistics

RULE = "rule"


class Criterion(NamedTuple):
    """One comparison of a standard: a metric, the sign between, and the limit."""

    what: str
    value: float
    sign: str
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it holds; a metric that is no number holds nothing."""
        return _SIGNS[self.sign](self.value, self.limit)

    def __str__(self) -> str:
        return f"{self.what} {self.value:.3g} ({self.sign} {self.limit:.3g})"


_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "≤": lambda a, b: a <= b, "<": lambda a, b: a < b, "≥": lambda a, b: a >= b, ">": lambda a, b: a > b,
}  # fmt: skip


class Measured(NamedTuple):
    """The metrics of an output: of what is judged, of a naive run of the formula in the same dtype, and of a second
    benchmark, which is the naive run where nobody brought another.
    """

    found: Statistics
    naive: Statistics
    second: Statistics
    dtype: torch.dtype
    precision: torch.dtype  # that ulp are counted in, for the rule: coarser where the contract rounds on the way
    naive_precision: torch.dtype


Figures = Mapping[str, Any]


def sound(measured: Measured) -> tuple[Criterion, ...]:
    """What every standard asks for."""
    found, smallest = measured.found, torch.finfo(measured.dtype).smallest_normal
    nothing = found[of.largest_found()] == 0 and found[of.max_true()] >= smallest
    return (
        Criterion("NaN or Inf where the truth has none, or the reverse", found.misplaced, "≤", 0),
        Criterion("all zeros where the truth is not", float(nothing), "≤", 0),
    )


class Kind(NamedTuple):
    """The metrics that a kind of standard looks at, and its verdict with all comparisons."""

    measures: Callable[[Figures], Iterable[Measure]]
    judge: Callable[[Figures, Measured], tuple[bool, list[Criterion]]]


def _rule(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:  # noqa: ARG001  it has none
    judged = verdict(measured.found, measured.naive, measured.precision, measured.naive_precision)
    return judged.ok, [
        Criterion("largest error", judged.max_error, "≤", judged.max_allowed),
        Criterion("root mean square of the errors", judged.rms_error, "≤", judged.rms_allowed),
    ]


def _mixed(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    share, capped = (measured.found[measure] for measure in _mixed_measures(figures))
    within = f"share within {figures['atol']:.3g} + {figures['rtol']:.3g}·|true|"
    beyond = f"errors beyond {figures['limit']:.3g}" + (f" and {figures['ulp']:.0f} ulp" if figures["ulp"] else "")
    return _all(Criterion(within, share, "≥", figures["matched"]), Criterion(beyond, capped, "≤", 0))


def _mixed_measures(figures: Figures) -> tuple[Measure, Measure]:
    return of.matched(figures["atol"], figures["rtol"]), of.beyond(figures["limit"], float(figures["ulp"]))


def _relative(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    mean, largest = (measured.found[measure] for measure in _relative_measures(figures))
    return _all(
        Criterion("mean relative error", mean, "<", figures["mean"]),
        Criterion("largest relative error", largest, "<", figures["largest"] * figures["mean"]),
    )


def _relative_measures(figures: Figures) -> tuple[Measure, Measure]:
    return of.mean_relative(figures["guard"], ALL), of.max_relative(figures["guard"], ALL)


def ratio_measures(figures: Figures) -> dict[str, Measure]:
    """The metrics that are divided by those of a second benchmark."""
    guard, small = figures["guard"], figures["small"]
    return {
        "max": of.max_relative(guard, small), "mean": of.mean_relative(guard, small), "rms": of.rms_normal(small),
    }  # fmt: skip


_OF_RATIO = {"max": "largest relative error", "mean": "mean relative error", "rms": "root mean square of the errors"}


def _ratios(
    figures: Figures, measured: Measured, over: Callable[[float, float], float], small: Measure
) -> tuple[bool, list[Criterion]]:
    """Metrics of normal values as multiples of the second benchmark's; then those of small values."""
    pairs = {name: (measured.found[item], measured.second[item]) for name, item in ratio_measures(figures).items()}
    criteria = [
        Criterion(f"{_OF_RATIO[name]}, times the benchmark's", over(*pair), "≤", figures[name])
        for name, pair in pairs.items()
    ]
    ours, theirs = measured.found[small], measured.second[small]
    times = ours / max(theirs, 1.0) if small == _small_count(figures) else over(ours, theirs)
    return _all(
        *criteria, Criterion("errors of small values, times the benchmark's", times, "≤", figures["small_errors"])
    )


def _small_count(figures: Figures) -> Measure:
    return of.small_errors(figures["small"], figures["atol"])


def small_share(figures: Figures) -> Measure:
    """The share of small values whose error is too large."""
    return of.share_small_errors(figures["small"], figures["atol"])


def _double(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    guard = figures["ratio_guard"]
    return _ratios(figures, measured, lambda ours, theirs: ours / (theirs + guard), _small_count(figures))


def _msprobe(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    least = figures["least"]
    return _ratios(figures, measured, lambda ours, theirs: ours / max(theirs, least), small_share(figures))


def _absolute(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    normal, small = (measured.found[measure] for measure in absolute_measures(figures))
    return _all(
        Criterion(f"share of normal values with a relative error beyond {figures['rtol']:.3g}", normal, "≤", 0),
        Criterion(f"share of small values with an error beyond {figures['atol']:.3g}", small, "≤", 0),
    )


def absolute_measures(figures: Figures) -> tuple[Measure, Measure]:
    """The shares of normal and of small values whose error is too large."""
    return of.share_relative_beyond(figures["guard"], figures["small"], figures["rtol"]), small_share(figures)


def _shares(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    cosine = Criterion("cosine", measured.found[of.cosine()], ">", figures["cosine"])
    error = Criterion("largest error", measured.found[of.max_error()], "<", figures["error"])
    shares = [
        Criterion(f"share of relative errors below {limit}", measured.found[measure], ">", 1 - limit)
        for limit, measure in zip(figures["shares"], _shares_measures(figures), strict=True)
    ]
    return cosine.ok and (error.ok or all(share.ok for share in shares)), [cosine, error, *shares]


def _shares_measures(figures: Figures) -> list[Measure]:
    return [of.share_relative_below(figures["guard"], limit) for limit in figures["shares"]]


def _ulp(figures: Figures, measured: Measured) -> tuple[bool, list[Criterion]]:
    beyond = of.share_beyond_ulp(float(figures["beyond"]))
    ours, theirs = measured.found[beyond], measured.second[beyond]
    what = f"share of errors beyond {figures['beyond']} ulp"
    criteria = [
        Criterion(what, ours, "<", figures["share"]),
        Criterion(f"{what}, times the benchmark's", ours / max(theirs, figures["least"]), "<", 1),
    ]
    if "mean" in figures:
        criteria.append(Criterion("mean error in ulp", measured.found[of.mean_ulp()], "<", figures["mean"]))
    return any(criterion.ok for criterion in criteria), criteria


def _all(*criteria: Criterion) -> tuple[bool, list[Criterion]]:
    return all(criterion.ok for criterion in criteria), list(criteria)


KINDS = {
    RULE: Kind(lambda _: of.BASIC, _rule),
    "mixed": Kind(_mixed_measures, _mixed),
    "relative": Kind(_relative_measures, _relative),
    "ratio": Kind(lambda f: [*ratio_measures(f).values(), _small_count(f)], _double),
    "msprobe": Kind(lambda f: [*ratio_measures(f).values(), small_share(f)], _msprobe),
    "absolute": Kind(absolute_measures, _absolute),
    "shares": Kind(_shares_measures, _shares),
    "ulp": Kind(lambda f: [of.share_beyond_ulp(float(f["beyond"])), of.mean_ulp()], _ulp),
}
