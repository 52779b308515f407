"""What every row has to reach, as data: a pattern of rows, a quantity, a limit.

Keys of rows are `operator/case/dtype`, `overhead/<door>` and `alternation/<name>`; patterns are those of fnmatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import geometric_mean


@dataclass(frozen=True)
class Bar:
    """`quantity` of every row that matches `rows` must be at least (or at most) `limit`; `says` tells people."""

    rows: str
    quantity: str
    limit: float
    says: str
    at_least: bool = True
    on_average: bool = False  # the geometric mean over the rows counts, not each of them

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


def ahead_of_all(rows: str) -> Bar:
    """Faster than the fastest peer."""
    return Bar(rows, "lead", 1, "faster than every peer")


CPU_BARS = (
    faster("nn.LSTM/*/*", 1, "not slower than nn.LSTM, forward and backward"),
    faster("nn.LinearCrossEntropyLoss/*/*", 1, "not slower than eager, forward and backward"),
    faster("nn.linear_cross_entropy/*/*", 1, "not slower than verl's formula, forward and backward"),
    *(
        at_most(f"nn.LinearCrossEntropyLoss/*{job}/*", "extra_bytes", 4 * 1024 * 32000 / 8, "extra memory ≤ 4·BT·V / 8")
        for job in ("_32000", "_options")
    ),
    at_most("nn.linear_cross_entropy/*_policy/*", "extra_bytes", 256 << 20, "extra memory ≤ 256 MiB"),
    faster("nn.VocabParallelLinearCrossEntropyLoss/*/bfloat16", 1.3, "≥ 1.3× Megatron's formulas over the same ranks"),
    at_most(
        "nn.VocabParallelLinearCrossEntropyLoss/*/bfloat16",
        "times one process",
        1.10,
        "≤ 1.10× one process of as many threads",
    ),
    at_most(
        "nn.VocabParallelLinearCrossEntropyLoss/2_ranks_1024_1024_32000/bfloat16",
        "extra_bytes",
        4 * 1024 * 16000 / 8,
        "extra memory of a rank ≤ 4·BT·V / 8 of its rows",
    ),
    faster("nn.SyncBatchNorm/*/*", 2, "≥ 2× plain torch over the same ranks"),
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
    at_most("overhead/python door", "seconds", 6e-6, "≤ 6 µs"),
    at_most("overhead/aclnn pair", "seconds", 15e-6, "≤ 15 µs"),
    at_most("overhead/C ABI pair", "seconds", 20e-6, "≤ 20 µs"),
    at_most("alternation/*", "p99", 1e-3, "p99 ≤ 1 ms: no stall"),
)


def near_bound(rows: str, share: float) -> Bar:
    """At least this share of what the machine can do."""
    return Bar(rows, "share_of_bound", share, f"≥ {share:.2f} of the bound")


ACCUMULATOR = {"8192_4096": 8192 * 4096 * 4, "4096_2048": 4096 * 2048 * 4, "16384_5120": 16384 * 5120 * 4}
"""Bytes of the float32 sums of the input's gradient, by the case's tokens and hidden size."""

CUDA_BARS = (
    faster("lstm/*/*", 1, "not slower than cuDNN"),
    ahead_of_all("nn.LinearCrossEntropyLoss/*/*"),
    ahead_of_all("nn.linear_cross_entropy/*/*"),
    faster("nn.linear_cross_entropy/*_policy/*", 3, "≥ 3× verl's formula"),
    *(
        at_most(f"{module}/*/*", "extra_bytes", 256 << 20, "extra memory ≤ 256 MiB")
        for module in ("nn.LinearCrossEntropyLoss", "nn.linear_cross_entropy")
    ),
    near_bound("nn.VocabParallelLinearCrossEntropyLoss/shard_*/*", 0.93),
    at_most("nn.VocabParallelLinearCrossEntropyLoss/sum_*/*", "times without a sum", 1.03, "≤ 1.03× without a sum"),
    within("hardsigmoid_backward/*/*", 1.03, "aten"),
    near_bound("hardsigmoid_backward/256Mi/*", 0.97),
    near_bound("batch_norm_elemt_backward/64x256x56_*/*", 0.90),
    near_bound("batch_norm_elemt_backward/32x64x224_*/*", 0.90),
    near_bound("batch_norm_elemt_backward/256x2048x7_*/*", 0.80),
    near_bound("lstm_cell_backward/B8192_H2048/*", 0.88),
    near_bound("lstm_cell_backward/B32768_H1024/*", 0.88),
    faster("lstm_cell_backward/B64_H512/*", 1, "faster than aten"),
    faster("lstm_backward/*/*", 1, "faster than cuDNN"),
    faster("lstm_backward/T512_B16_256_2x2/*", 8, "≥ 8× cuDNN"),
    Bar("lstm_backward/*/*", "speedup", 2.5, "≥ 2.5× cuDNN on geometric average", on_average=True),
    near_bound("linear_cross_entropy_backward/head_*/*", 0.93),
    near_bound("linear_cross_entropy_backward/softmax_*/*", 0.92),
    *(
        at_most(f"linear_cross_entropy_backward/*_{sizes}_*/*", "extra_bytes", (256 << 20) + sums,
                "extra memory ≤ 256 MiB and one float32 accumulator")
        for sizes, sums in ACCUMULATOR.items()
    ),
)  # fmt: skip

BARS: dict[str, tuple[Bar, ...]] = {"cpu": CPU_BARS, "cuda": CUDA_BARS}
"""By kind of device."""


def judge(bars: tuple[Bar, ...], found: Mapping[str, Mapping[str, float]], whole: bool = True) -> list[Judged]:
    """Hold every bar against every row it is about; in a `whole` run a bar without a row counts as not measured."""
    judged = []
    for bar in bars:
        keys = [key for key in found if fnmatchcase(key, bar.rows)]
        if bar.on_average and keys:
            judged.append(_on_average(bar, [found[key].get(bar.quantity) for key in keys]))
            continue
        for key in keys or ([bar.rows] if whole else []):
            value = found.get(key, {}).get(bar.quantity)
            met = None if value is None else bar.met_by(value)
            judged.append(Judged(key, bar.quantity, bar.limit, bar.says, value, met))
    return judged


def _on_average(bar: Bar, values: list[float | None]) -> Judged:
    known = [value for value in values if value is not None]
    mean = geometric_mean(known) if len(known) == len(values) else None
    return Judged(bar.rows, bar.quantity, bar.limit, bar.says, mean, None if mean is None else bar.met_by(mean))
