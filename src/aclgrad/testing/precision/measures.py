"""Metrics: each is a number made of sums or of maxima over elements, so that pieces of a tensor can be measured apart.

A standard's thresholds are parameters of its metrics: two standards that ask for the same one share it. A metric's text
is its name in a file, such as `matched(0.001, 0.001)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

from torch import Tensor

from .elements import Elements

Parts = tuple[float, ...]


class Measure(NamedTuple):
    """A metric with its parameters."""

    name: str
    parameters: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.parameters))})"

    def parts(self, elements: Elements) -> Parts:
        """What a piece of a tensor contributes; the piece has at least one element."""
        return tuple(float(part) for part in _KINDS[self.name].parts(elements, *self.parameters))

    def merged(self, one: Parts | None, other: Parts | None) -> Parts | None:
        """What two pieces contribute together; None is an empty one."""
        if one is None or other is None:
            return other if one is None else one
        largest = _KINDS[self.name].keeps_largest
        return tuple(max(a, b) if largest else a + b for a, b in zip(one, other, strict=True))

    def value(self, parts: Parts | None) -> float:
        """The metric from what all pieces contribute; 0 of none."""
        return 0.0 if parts is None else _KINDS[self.name].value(*parts)


class _Kind(NamedTuple):
    parts: Callable[..., Sequence[Tensor | float]]
    value: Callable[..., float]
    keeps_largest: bool


_KINDS: dict[str, _Kind] = {}


def _metric(
    name: str, parts: Callable[..., Sequence[Tensor | float]], value: Callable[..., float], largest: bool = False
) -> Callable[..., Measure]:
    _KINDS[name] = _Kind(parts, value, largest)
    return lambda *parameters: Measure(name, parameters)


def _as_it_is(total: float) -> float:
    return total


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _root(squares: float, count: float) -> float:
    return sqrt(_share(squares, count))


def _cosine(products: float, found: float, true: float) -> float:
    return products / sqrt(found * true) if found and true else float(found == true)


def _squares(values: Tensor) -> Tensor:
    return values.square().sum()


def _count(flags: Tensor) -> Tensor:
    return flags.count_nonzero()


count = _metric("count", lambda x: (len(x),), _as_it_is)
max_error = _metric("max_error", lambda x: (x.error.max(),), _as_it_is, largest=True)
mean_error = _metric("mean_error", lambda x: (x.error.sum(), len(x)), _share)
bias = _metric("bias", lambda x: (x.difference.sum(), len(x)), _share)
rms_error = _metric("rms_error", lambda x: (_squares(x.error), len(x)), _root)
max_true = _metric("max_true", lambda x: (x.size.max(),), _as_it_is, largest=True)
rms_true = _metric("rms_true", lambda x: (_squares(x.true), len(x)), _root)
largest_found = _metric("largest_found", lambda x: (x.found.abs().max(),), _as_it_is, largest=True)
cosine = _metric(
    "cosine", lambda x: ((x.found * x.true).sum(), _squares(x.found), _squares(x.true)), _cosine
)  # fmt: skip
imbalance = _metric(
    "imbalance",
    lambda x: (_count(x.difference > 0), _count(x.difference < 0), len(x)),
    lambda larger, smaller, whole: _share(abs(larger - smaller), whole),
)

max_ulp = _metric("max_ulp", lambda x: (x.ulp.max(),), _as_it_is, largest=True)
mean_ulp = _metric("mean_ulp", lambda x: (x.ulp_of_zero_as_one.sum(), len(x)), _share)
share_beyond_ulp = _metric(
    "share_beyond_ulp", lambda x, ulp: (_count(x.ulp_of_zero_as_one > ulp), len(x)), _share
)  # fmt: skip

max_relative = _metric(
    "max_relative", lambda x, guard, above: (_of_normal(x, guard, above).max(),), _as_it_is, largest=True
)
"""The largest error / (|true| + guard) where |true| > above."""

mean_relative = _metric(
    "mean_relative", lambda x, guard, above: (_of_normal(x, guard, above).sum(), _normal_count(x, above)), _share
)
rms_normal = _metric(
    "rms_normal", lambda x, above: (_squares(x.error * x.above(above)[1]), _normal_count(x, above)), _root
)
share_relative_below = _metric(
    "share_relative_below", lambda x, guard, limit: (_count(x.relative(guard) < limit), len(x)), _share
)
share_relative_beyond = _metric(
    "share_relative_beyond",
    lambda x, guard, above, limit: (_count(_of_normal(x, guard, above) > limit), _normal_count(x, above)),
    _share,
)
small_errors = _metric(
    "small_errors", lambda x, above, atol: (_small_errors(x, above, atol),), _as_it_is
)  # fmt: skip
"""How many errors exceed `atol` where |true| ≤ above."""

share_small_errors = _metric(
    "share_small_errors",
    lambda x, above, atol: (_small_errors(x, above, atol), len(x) - float(_normal_count(x, above))),
    _share,
)
matched = _metric(
    "matched", lambda x, atol, rtol: (_count(x.error <= x.size * rtol + atol), len(x)), _share
)  # fmt: skip
"""The share of elements with error ≤ atol + rtol · |true|."""

beyond = _metric("beyond", lambda x, limit, ulp: (_count((x.error > limit) & (x.ulp > ulp)),), _as_it_is)
"""How many errors exceed both a limit and so many ulp."""


def _of_normal(x: Elements, guard: float, above: float) -> Tensor:
    return x.relative(guard) * x.above(above)[1] if above >= 0 else x.relative(guard)


def _normal_count(x: Elements, above: float) -> Tensor | float:
    return _count(x.above(above)[0]) if above >= 0 else len(x)


def _small_errors(x: Elements, above: float, atol: float) -> Tensor:
    return _count((x.error > atol) > x.above(above)[0])  # of bools: the first and not the second


ALL = -1.0
"""A limit that every |true| is above."""

BASIC = (count(), max_error(), rms_error(), max_true(), rms_true())
"""What the tolerance rule looks at."""

ALWAYS = (*BASIC, mean_error(), bias(), largest_found(), cosine(), imbalance(), max_ulp())


def values(measured: Mapping[Measure, Parts | None]) -> dict[str, Any]:
    """The metrics by their texts."""
    return {str(measure): measure.value(parts) for measure, parts in measured.items()}
