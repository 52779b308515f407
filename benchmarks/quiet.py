"""Other programs on the same cores: notice them, and wait for them.

A time measured while others compute says little, even as a ratio: a thread without its core stands still for as long
whatever it runs. So measurements come in short batches, a batch in which others were busy is thrown away, and the next
one waits until the machine is idle; until patience ends, after which the report says what others took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HELPERS: set[int] = set()
"""Processes whose time is this one's."""

CALM = 0.06  # share of the machine's time that others may take in a batch
LOOK = 0.2  # seconds


@dataclass
class Patience:
    """Seconds that may be lost to other programs."""

    seconds: float

    def lose(self, seconds: float) -> bool:
        """Give up these seconds and then as many more as others stay busy; False if there are none left to lose."""
        if self.seconds <= 0:
            return False
        begin = time.monotonic()
        self.seconds -= seconds
        while self.seconds > time.monotonic() - begin:
            watch = Watch()
            time.sleep(LOOK)
            if watch.others() <= CALM:
                break
        self.seconds -= time.monotonic() - begin
        return True

    @contextmanager
    def part(self, most: float) -> Iterator[Patience]:
        """At most this much of it, for one measurement."""
        given = min(most, self.seconds)
        lent = Patience(given)
        yield lent
        self.seconds -= given - lent.seconds


class Watch:
    """From its creation on, what share of the machine's time other programs take; 0 where that is unknown."""

    def __init__(self) -> None:
        self.total, self.busy = _processor_time()
        self.own = _own_time()

    def others(self) -> float:
        """The share so far."""
        total, busy = _processor_time()
        if total <= self.total:
            return 0.0
        return max(0.0, busy - self.busy - (_own_time() - self.own)) / (total - self.total)


def _own_time() -> float:
    """Seconds that this process and its helpers have computed."""
    second, total = os.sysconf("SC_CLK_TCK") if HELPERS else 1, time.process_time()
    for pid in HELPERS:
        source = Path(f"/proc/{pid}/stat")
        if source.exists():
            user, system = source.read_text().rpartition(")")[2].split()[11:13]
            total += (int(user) + int(system)) / second
    return total


def _processor_time() -> tuple[float, float]:
    """Seconds of all processors since they started, and how many of them were not idle."""
    source = Path("/proc/stat")
    if not source.exists():
        return 0.0, 0.0
    ticks = [int(word) for word in source.read_text().split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return sum(ticks) / second, (sum(ticks) - idle) / second
