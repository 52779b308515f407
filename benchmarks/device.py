"""Where a benchmark runs. A `Device` is a clock, a memory meter, measured rates and a description without secrets.

Another kind of device is another subclass and one entry in `DEVICES`; nothing else asks what it runs on.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from aclgrad.core.memory import drop_workspace

from .timing import FULL, QUICK, Call, Effort, interleaved

MIB = 1 << 20
HEAD_START, LONG_HEAD_START = 1_000_000, 4_000_000  # cycles: half a millisecond and two, for short calls and others
COLD = 3  # inputs in rotation fill the last cache this many times over
HALVES = (torch.float16, torch.bfloat16)


class Device(ABC):
    """One place to compute."""

    kind: str
    thorough: Effort = FULL  # what a result that is kept takes
    copied: int  # bytes by which the copy rate is measured
    matmul_size: int  # by which the product rate is measured
    largest: int = 1  # a sweep ends this many times beyond the sizes of a CPU

    def __init__(self, effort: Effort = QUICK, compiling: bool = False) -> None:
        self.effort = effort  # with which the rates are measured
        self.compiling = compiling  # whether peers that compile for seconds take part

    @property
    @abstractmethod
    def last_cache(self) -> int:
        """Bytes of the last cache before memory."""

    @abstractmethod
    def clock(self, call: Call, first: int, count: int) -> float:
        """Seconds for the runs first … first + count - 1, finished."""

    def host_clock(self, call: Call, first: int, count: int) -> float:
        """Seconds that the runs keep the calling thread busy."""
        begin = time.perf_counter()
        for k in range(first, first + count):
            call(k)
        return time.perf_counter() - begin

    @abstractmethod
    def peak(self, call: Callable[[], object]) -> int:
        """The most bytes allocated at one time during a call beyond those before it."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a reader must know of the machine; no names of hosts, users or paths."""

    @property
    def matmul_flops(self) -> int:
        """Operations of the product by which the rate is measured."""
        return 2 * self.matmul_size**3

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
        """A product of two square matrices, `matmul_flops` operations."""
        a, b = (torch.randn(self.matmul_size, self.matmul_size, device=self.kind).to(dtype) for _ in range(2))
        return lambda _: torch.mm(a, b.t())

    @cache  # noqa: B019  a device lives as long as the program
    def copy_rate(self) -> float:
        """Bytes read and written a second by a copy much larger than the caches; the best of some trials."""
        return self.copied / self._best(self.copy(self.copied))

    @cache  # noqa: B019
    def matmul_rate(self, dtype: torch.dtype) -> float:
        """Floating-point operations a second of torch.mm; the best of some trials."""
        return self.matmul_flops / self._best(self.matmul(dtype))

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
    copied = 512 * MIB
    matmul_size = 1024

    @property
    def last_cache(self) -> int:
        sizes = [0]
        for size in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
            number, unit = re.fullmatch(r"(\d+)([KMG])", size.read_text().strip()).groups()  # type: ignore[union-attr]
            sizes.append(int(number) << {"K": 10, "M": 20, "G": 30}[unit])
        return max(sizes) or 32 * MIB

    def clock(self, call: Call, first: int, count: int) -> float:
        return self.host_clock(call, first, count)

    def peak(self, call: Callable[[], object]) -> int:
        """By torch's profiler, which sees every block of torch's allocator; libraries' own scratch escapes it."""
        drop_workspace()  # the call allocates its own, for all to see
        watching = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)  # all of one cycle
        with _quiet_stderr(), watching as profiled:
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


class Cuda(Device):
    """The current NVIDIA GPU. What counts is the time on the GPU: it is kept busy until the host has launched a run.

    What a call costs the host is measured by itself, see `overhead`.
    """

    kind = "cuda"
    thorough = replace(FULL, seconds=0.4, limit=4.0)  # a GPU is steadier, and its hours are dearer
    copied = 4096 * MIB
    matmul_size = 8192
    largest = 16

    @property
    def last_cache(self) -> int:
        return int(torch.cuda.get_device_properties().L2_cache_size)

    def clock(self, call: Call, first: int, count: int) -> float:
        cuda: Any = torch.cuda  # torch leaves these untyped
        events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for k, (begin, end) in enumerate(events):
            cuda._sleep(LONG_HEAD_START if count == 1 else HEAD_START)
            begin.record()
            call(first + k)
            end.record()
        torch.cuda.synchronize()
        return float(sum(begin.elapsed_time(end) for begin, end in events)) / 1e3

    def host_clock(self, call: Call, first: int, count: int) -> float:
        torch.cuda.synchronize()
        elapsed = super().host_clock(call, first, count)
        torch.cuda.synchronize()
        return elapsed

    def peak(self, call: Callable[[], object]) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call()
        torch.cuda.synchronize()
        highest = torch.cuda.max_memory_allocated()
        del kept
        return highest - before

    def describe(self) -> dict[str, Any]:
        chip = torch.cuda.get_device_properties()
        return {
            "kind": self.kind,
            "name": chip.name,
            "multiprocessors": chip.multi_processor_count,
            "capability": f"{chip.major}.{chip.minor}",
            "last_cache_mib": self.last_cache // MIB,
            "cuda": torch.version.cuda,
            "triton": importlib.metadata.version("triton"),
        }


DEVICES: dict[str, type[Device]] = {"cpu": Cpu, "cuda": Cuda}


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
