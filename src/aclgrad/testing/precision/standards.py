"""Standards of precision: verdicts over metrics. Their figures are in `standards.toml`; here is what a kind compares.

Whatever the standard, a result fails that is NaN or infinite where the truth is not, or the reverse, and one that is
all zeros where the truth is not. Integers and bools must be equal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch

from ...core.errors import InvalidArgument
from ...core.meta import dtype_name
from . import measures as of
from .kinds import KINDS, RULE, Criterion, Figures, Measured, absolute_measures, ratio_measures, small_share, sound
from .measures import Measure

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEVELS = ("L0", "L1", "L2")


class Asked(NamedTuple):
    """The standard to judge by, and the level. What fails by it, or by our rule, is explained element by element."""

    standard: str
    level: str


class Judgement(NamedTuple):
    """What a standard says of an output; `ok` is None where it has no figures for the output's dtype."""

    ok: bool | None
    criteria: tuple[Criterion, ...]

    @property
    def broken(self) -> tuple[Criterion, ...]:
        """The comparisons that do not hold; of alternatives, each."""
        return tuple(criterion for criterion in self.criteria if not criterion.ok)


@dataclass(frozen=True)
class Standard:
    """A standard: where its figures come from, and the figures."""

    name: str
    kind: str
    title: str
    source: str
    revision: str
    figures: Figures = field(repr=False)

    def of(self, dtype: torch.dtype) -> Figures | None:
        """The figures for a dtype; None if there are none."""
        own = self.figures.get(dtype_name(dtype))
        if own is None and self.kind != RULE:
            return None
        return {**self.figures, **(own or {})}

    def measures(self, dtype: torch.dtype) -> Iterable[Measure]:
        """The metrics that it compares."""
        figures = self.of(dtype)
        return () if figures is None else KINDS[self.kind].measures(figures)

    def judge(self, measured: Measured, level: str = LEVELS[0]) -> Judgement:
        """The verdict on an output of floating-point numbers."""
        common, figures = sound(measured), self.of(measured.dtype)
        is_sound = all(criterion.ok for criterion in common)
        if figures is None or measured.found[of.count()] == 0:  # no numbers, or none that can be off
            return Judgement(None if figures is None and is_sound else is_sound, common)
        ok, criteria = KINDS[self.kind].judge({**figures, **figures.get(level, {})}, measured)
        return Judgement(is_sound and ok, (*common, *criteria))


@cache
def standards() -> dict[str, Standard]:
    """All standards by name."""
    known = tomllib.loads(files(__package__).joinpath("standards.toml").read_text(encoding="utf-8"))
    words = ("kind", "title", "source", "revision")
    return {
        name: Standard(
            name, table["kind"], table["title"], table["source"], table["revision"],
            _numbers({word: value for word, value in table.items() if word not in words}),
        )
        for name, table in known.items()
    }  # fmt: skip


def standard_named(name: str) -> Standard:
    """The standard of a name."""
    if name not in standards():
        raise InvalidArgument(f"standard is {name!r}, expected one of {', '.join(standards())}", "standard")
    return standards()[name]


def asked(standard: str, level: str) -> Asked:
    """What somebody asks for, if there is such a standard and such a level.

    >>> asked("double", "L2")
    Asked(standard='double', level='L2')
    """
    if level not in LEVELS:
        raise InvalidArgument(f"level is {level!r}, expected one of {', '.join(LEVELS)}", "level")
    return Asked(standard_named(standard).name, level)


def all_measures(dtype: torch.dtype) -> list[Measure]:
    """The metrics that any standard compares for a dtype, and those that are always reported."""
    asked = [measure for standard in standards().values() for measure in standard.measures(dtype)]
    return list(dict.fromkeys([*of.ALWAYS, *asked, *columns(dtype).values()]))


def columns(dtype: torch.dtype) -> dict[str, Measure]:
    """The metrics that msprobe writes about an output of floating-point numbers, by the names of its columns."""
    ratio, threshold = (standards()[name].of(dtype) for name in ("msprobe-code", "threshold"))
    common = {"余弦相似度": of.cosine(), "最大绝对误差": of.max_error(), "误差均衡性": of.imbalance()}
    if ratio is None or threshold is None:
        return common
    guard, (normal, small) = ratio["guard"], absolute_measures(threshold)
    named = ratio_measures(ratio)
    return {
        **common,
        "双百指标": of.share_relative_below(guard, 0.01),
        "双千指标": of.share_relative_below(guard, 0.001),
        "双万指标": of.share_relative_below(guard, 0.0001),
        "均方根误差": named["rms"],
        "小值域错误占比": small_share(ratio),
        "相对误差最大值": named["max"],
        "相对误差平均值": named["mean"],
        "相对误差错误率": normal,
        "绝对误差错误率": small,
        "ULP误差最大值": of.max_ulp(),
        "ULP误差平均值": of.mean_ulp(),
        "ULP误差大于阈值占比": of.share_beyond_ulp(float((standards()["ulp"].of(dtype) or {})["beyond"])),
    }


def _numbers(table: Any) -> Any:
    """The figures, powers of two as numbers."""
    if isinstance(table, dict):
        return {name: _numbers(value) for name, value in table.items()}
    if isinstance(table, str):
        base, _, exponent = table.partition("^")
        return float(base) ** int(exponent)
    return table
