"""Interleaved timing: contenders take turns, so that whatever disturbs the machine disturbs all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from .quiet import CALM, Patience, Watch

Call = Callable[[int], object]
"""A contender: takes the number of the run, by which it picks one of its rotated inputs."""

Clock = Callable[[Call, int, int], float]
"""Seconds for `count` runs of a contender beginning with number `first`."""

SHORT = 50e-6  # seconds below which several runs make one sample
SAMPLE = 200e-6
WARMING = 3  # untimed runs before a sample on warm caches
SLOW = 1.0  # seconds above which one run is warming up enough
BATCH = 0.25  # seconds after which to see what other programs did
MOST_LOST = 40.0  # seconds that one measurement may lose to them


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds to spend, limits on the number of samples, and where thoroughness ends."""

    seconds: float
    fewest: int
    most: int
    limit: float  # seconds after which three samples must do
    patience: Patience = field(default_factory=lambda: Patience(0.0))

    def is_spent(self, seconds: float, samples: int) -> bool:
        """Whether to stop after this many samples of each contender."""
        if samples >= self.most or (seconds > self.seconds and samples >= self.fewest):
            return True
        return seconds > self.limit and samples >= 3


FULL = Effort(seconds=2.0, fewest=9, most=400, limit=10.0)
QUICK = Effort(seconds=0.3, fewest=3, most=40, limit=1.0)


@dataclass(frozen=True)
class Timing:
    """Seconds for one run, over all samples."""

    best: float
    median: float
    p90: float
    p99: float
    worst: float
    samples: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        """The summary of these samples."""
        ordered = sorted(seconds)

        def quantile(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return cls(ordered[0], quantile(0.5), quantile(0.9), quantile(0.99), ordered[-1], len(ordered))


class Turns(NamedTuple):
    """The contenders' timings, and the share of the machine's time that other programs took meanwhile."""

    timings: dict[str, Timing]
    others: float


def heated(clock: Clock) -> Clock:
    """A clock for warm caches: each sample follows untimed ones of the same runs.

    One would not do: it finds the caches full of the contender before it, and what it evicts in turn is partly its own.
    """

    def timed(call: Call, first: int, count: int) -> float:
        for _ in range(WARMING):
            clock(call, first, count)
        return clock(call, first, count)

    return timed


def interleaved(contenders: Mapping[str, Call], clock: Clock, effort: Effort, one_by_one: bool = False) -> Turns:
    """Time all contenders by turns (A B A B …) until the effort is spent, in batches that others left alone.

    Short runs are sampled several at a time, unless they are to be `one_by_one`.
    """
    counts = dict.fromkeys(contenders, 1) if one_by_one else {}
    for name, call in contenders.items():
        once = clock(call, 0, 1)  # first use compiles, allocates, fills caches
        if once < SLOW:
            once = clock(call, 1, 1)
        counts.setdefault(name, max(1, int(SAMPLE / max(once, 1e-7))) if once < SHORT else 1)
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    spent, turns, taken = 0.0, 0, 0.0
    with no_garbage_collection(), effort.patience.part(MOST_LOST) as patience:
        while not effort.is_spent(spent, turns):
            watch, begin, elapsed = Watch(), time.perf_counter(), 0.0
            batch: list[dict[str, float]] = []
            while elapsed < BATCH and not effort.is_spent(spent + elapsed, turns + len(batch)):
                first = turns + len(batch)
                batch.append(
                    {name: clock(call, first * counts[name], counts[name]) for name, call in contenders.items()}
                )
                elapsed = time.perf_counter() - begin  # untimed runs count as effort too
            others = watch.others()
            if others > CALM and patience.lose(elapsed):
                continue
            for turn in batch:
                for name, seconds in turn.items():
                    samples[name].append(seconds / counts[name])
            spent, turns, taken = spent + elapsed, turns + len(batch), taken + others * elapsed
    return Turns({name: Timing.of(found) for name, found in samples.items()}, taken / spent)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep Python's collector out of the samples."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
