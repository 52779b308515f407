"""Where a benchmark runs. A `Device` is a clock, a memory meter, measured rates and a description without secrets.

Another kind of device is another subclass and one entry in `DEVICES`; nothing else asks what it runs on.
"""

from __future__ import annotations

import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from aclgrad.testing.layouts import apply

from .timing import QUICK, Call, Effort, interleaved

MIB = 1 << 20
COPY_BYTES = 512 * MIB
COLD = 3  # inputs in rotation fill the last cache this many times over
MATMUL_SIZE = 1024
MATMUL_FLOPS = 2 * MATMUL_SIZE**3
HALVES = (torch.float16, torch.bfloat16)


class Device(ABC):
    """One place to compute."""

    kind: str

    def __init__(self, effort: Effort = QUICK) -> None:
        self.effort = effort  # with which the rates are measured

    @property
    @abstractmethod
    def last_cache(self) -> int:
        """Bytes of the last cache before memory."""

    @abstractmethod
    def clock(self, call: Call, first: int, count: int) -> float:
        """Seconds for the runs first … first + count - 1, finished."""

    @abstractmethod
    def peak(self, call: Callable[[], object]) -> int:
        """The most bytes allocated at one time during a call beyond those before it."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a reader must know of the machine; no names of hosts, users or paths."""

    def place(self, value: Any) -> Any:
        """The value with its tensors on this device."""
        return apply(lambda tensor: tensor.to(self.kind), value)

    def copy(self, count: int, warm: bool = False) -> Call:
        """A copy that reads and writes `count` bytes in all, each time elsewhere in large memory unless `warm`."""
        half = max(1, count // 2)
        size = half if warm else max(half, COLD * self.last_cache // 2)
        source, target = (torch.ones(size, dtype=torch.uint8, device=self.kind) for _ in range(2))
        windows = [(target[at : at + half], source[at : at + half]) for at in range(0, size - half + 1, half)]

        def call(k: int) -> object:
            to, origin = windows[k % len(windows)]
            return to.copy_(origin)

        return call

    def matmul(self, dtype: torch.dtype) -> Call:
        """A product of two square matrices, `MATMUL_FLOPS` operations."""
        a, b = (torch.randn(MATMUL_SIZE, MATMUL_SIZE, device=self.kind).to(dtype) for _ in range(2))
        return lambda _: torch.mm(a, b.t())

    @cache  # noqa: B019  a device lives as long as the program
    def copy_rate(self) -> float:
        """Bytes read and written a second by a copy much larger than the caches; the best of some trials."""
        return COPY_BYTES / self._best(self.copy(COPY_BYTES))

    @cache  # noqa: B019
    def matmul_rate(self, dtype: torch.dtype) -> float:
        """Floating-point operations a second of torch.mm; the best of some trials."""
        return MATMUL_FLOPS / self._best(self.matmul(dtype))

    def fastest_for(self, dtype: torch.dtype) -> torch.dtype:
        """The type in which products of this type run fastest: a half type may do better widened to float32."""
        candidates = (dtype, torch.float32) if dtype in HALVES else (dtype,)
        return max(candidates, key=self.matmul_rate)

    def _best(self, call: Call) -> float:
        timings, _ = interleaved({"": call}, self.clock, self.effort)
        return timings[""].best


class Cpu(Device):
    """The host's processor with as many threads as torch uses."""

    kind = "cpu"

    @property
    def last_cache(self) -> int:
        sizes = [0]
        for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
            number, unit = re.fullmatch(r"(\d+)([KMG])", size.read_text().strip()).groups()  # type: ignore[union-attr]
            sizes.append(int(number) << {"K": 10, "M": 20, "G": 30}[unit])
        return max(sizes) or 32 * MIB

    def clock(self, call: Call, first: int, count: int) -> float:
        begin = time.perf_counter()
        for k in range(first, first + count):
            call(k)
        return time.perf_counter() - begin

    def peak(self, call: Callable[[], object]) -> int:
        """By torch's profiler, which sees every block of torch's allocator; libraries' own scratch escapes it."""
        with _quiet_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            kept = call()
        events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
        del kept  # its blocks stayed alive while the profiler was looking
        current = highest = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            current += event.nbytes()
            highest = max(highest, current)
        return highest

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "last_cache_mib": self.last_cache // MIB,
        }


DEVICES: dict[str, type[Device]] = {"cpu": Cpu}


def _processor() -> str:
    """The processor's model name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    import platform

    return platform.processor() or platform.machine()


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The profiler's library writes notes to file descriptor 2, through any progress bar."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
