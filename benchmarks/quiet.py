"""Other programs on the same cores: notice them, wait for them, measure again after them.

A time measured while others compute says little, even as a ratio: a thread without its core stands still for as long
whatever it runs. So a measurement waits until the machine is idle, watches what others take meanwhile, and is repeated
if they took too much; what they took is reported with the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CALM = 0.04  # share of the machine's time that others may take
LOOK = 0.2  # seconds


@dataclass(frozen=True)
class Patience:
    """How often to measure, and how many seconds to wait each time for the machine to become idle."""

    tries: int
    seconds: float


CAREFUL = Patience(tries=4, seconds=30.0)
HASTY = Patience(tries=1, seconds=0.0)


def quietly(measure: Callable[[], T], patience: Patience) -> tuple[T, float]:
    """The result of the least disturbed try, and the share of the machine's time that others took during it."""
    tries: list[tuple[float, T]] = []
    for _ in range(patience.tries):
        _wait(patience.seconds)
        watch = Watch()
        result = measure()
        tries.append((watch.others(), result))
        if tries[-1][0] <= CALM:
            break
    others, result = min(tries, key=lambda item: item[0])
    return result, others


def _wait(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watch = Watch()
        time.sleep(LOOK)
        if watch.others() <= CALM:
            return


class Watch:
    """From its creation on, what share of the machine's processor time other programs take; 0 where that is unknown."""

    def __init__(self) -> None:
        self.total, self.busy = _processor_time()
        self.own = time.process_time()

    def others(self) -> float:
        """The share so far."""
        total, busy = _processor_time()
        if total <= self.total:
            return 0.0
        return max(0.0, busy - self.busy - (time.process_time() - self.own)) / (total - self.total)


def _processor_time() -> tuple[float, float]:
    """Seconds of all processors since they started, and how many of them were not idle."""
    source = Path("/proc/stat")
    if not source.exists():
        return 0.0, 0.0
    ticks = [int(word) for word in source.read_text().split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return sum(ticks) / second, (sum(ticks) - idle) / second
