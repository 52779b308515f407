"""What every row has to reach, as data: a pattern of rows, a quantity, a limit.

Keys of rows are `operator/case/dtype`, `overhead/<door>` and `alternation/<name>`; patterns are those of fnmatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Bar:
    """`quantity` of every row that matches `rows` must be at least (or at most) `limit`; `says` tells people."""

    rows: str
    quantity: str
    limit: float
    says: str
    at_least: bool = True

    def met_by(self, value: float) -> bool:
        """Whether the value clears the bar."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Judged:
    """A bar held against one row; `met` is None where nothing was measured."""

    key: str
    quantity: str
    limit: float
    says: str
    value: float | None
    met: bool | None


def faster(rows: str, times: float, says: str) -> Bar:
    """At least `times` the peer's speed."""
    return Bar(rows, "speedup", times, says)


def within(rows: str, times: float, peer: str) -> Bar:
    """At most `times` the peer's time."""
    return Bar(rows, "ratio", times, f"≤ {times:.2f}× {peer}'s time", at_least=False)


def at_most(rows: str, quantity: str, limit: float, says: str) -> Bar:
    """No more than the limit."""
    return Bar(rows, quantity, limit, says, at_least=False)


CPU_BARS = (
    within("hardsigmoid_backward/1Mi/*", 1.10, "aten"),
    within("hardsigmoid_backward/16Mi/*", 1.10, "aten"),
    faster("lstm_cell_backward/B1024_H1024/float32", 6, "≥ 6× eager"),
    faster("lstm_cell_backward/B1024_H1024/*float16", 3, "≥ 3× eager"),
    faster("batch_norm_elemt_backward/*/*", 2.5, "≥ 2.5× eager"),
    within("lstm_backward/T64_B16_128/float32", 1.10, "nn.LSTM"),
    within("lstm_backward/T128_B32_256/float32", 1.10, "nn.LSTM"),
    within("lstm_backward/T64_B64_512/float32", 1.10, "nn.LSTM"),
    faster("lstm_backward/*_2x2/float32", 1, "ahead of nn.LSTM"),
    faster("linear_cross_entropy_backward/head_32000/bfloat16", 1, "not slower than eager"),
    at_most(
        "linear_cross_entropy_backward/head_32000/bfloat16",
        "extra_bytes",
        4 * 1024 * 32000 / 8,
        "extra memory ≤ 4·BT·V / 8",
    ),
    at_most("overhead/python door", "seconds", 12e-6, "≤ 12 µs"),
    at_most("overhead/aclnn pair", "seconds", 25e-6, "≤ 25 µs"),
    at_most("overhead/C ABI pair", "seconds", 30e-6, "≤ 30 µs"),
    at_most("alternation/*", "p99", 1e-3, "p99 ≤ 1 ms: no stall"),
)

BARS: dict[str, tuple[Bar, ...]] = {"cpu": CPU_BARS}
"""By kind of device."""


def judge(bars: tuple[Bar, ...], found: Mapping[str, Mapping[str, float]], whole: bool = True) -> list[Judged]:
    """Hold every bar against every row it is about; in a `whole` run a bar without a row counts as not measured."""
    judged = []
    for bar in bars:
        keys = [key for key in found if fnmatchcase(key, bar.rows)]
        for key in keys or ([bar.rows] if whole else []):
            value = found.get(key, {}).get(bar.quantity)
            met = None if value is None else bar.met_by(value)
            judged.append(Judged(key, bar.quantity, bar.limit, bar.says, value, met))
    return judged
