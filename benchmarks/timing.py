"""Interleaved timing: contenders take turns, so that whatever disturbs the machine disturbs all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from .quiet import CAREFUL, HASTY, Patience

Call = Callable[[int], object]
"""A contender: takes the number of the run, by which it picks one of its rotated inputs."""

Clock = Callable[[Call, int, int], float]
"""Seconds for `count` runs of a contender beginning with number `first`."""

SHORT = 50e-6  # seconds below which several runs make one sample
SAMPLE = 200e-6
SLOW = 1.0  # seconds above which one run is warming up enough


@dataclass(frozen=True)
class Effort:
    """How long to measure one row: seconds to spend, limits on the number of samples, and where patience ends."""

    seconds: float
    fewest: int
    most: int
    patience: float  # seconds after which three samples must do
    quiet: Patience = HASTY

    def is_spent(self, seconds: float, samples: int) -> bool:
        """Whether to stop after this many samples of each contender."""
        if samples >= self.most or (seconds > self.seconds and samples >= self.fewest):
            return True
        return seconds > self.patience and samples >= 3


FULL = Effort(seconds=2.5, fewest=9, most=400, patience=10.0, quiet=CAREFUL)
QUICK = Effort(seconds=0.3, fewest=3, most=40, patience=1.0)


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


def interleaved(contenders: Mapping[str, Call], clock: Clock, effort: Effort) -> dict[str, Timing]:
    """Time all contenders by turns (A B A B …) until the effort is spent."""
    counts = {}
    for name, call in contenders.items():
        once = clock(call, 0, 1)  # first use compiles, allocates, fills caches
        if once < SLOW:
            once = clock(call, 1, 1)
        counts[name] = max(1, int(SAMPLE / max(once, 1e-7))) if once < SHORT else 1
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    spent, turns = 0.0, 0
    with no_garbage_collection():
        while not effort.is_spent(spent, turns):
            for name, call in contenders.items():
                count = counts[name]
                elapsed = clock(call, turns * count, count)
                seconds[name].append(elapsed / count)
                spent += elapsed
            turns += 1
    return {name: Timing.of(samples) for name, samples in seconds.items()}


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
