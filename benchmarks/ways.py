"""`python -m benchmarks.ways`: every way to run an LSTM's recurrence on a GPU, timed beside what its model expects.

The chooser (`aclgrad/ops/lstm/triton/choose.py`) takes the way whose model promises the fewest microseconds a step.
Here each way is forced and measured at sizes drawn at random, or at those of a grid. A table tells what was chosen,
what was fastest, and what the wrong choices cost: it is what the models are fitted to.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table

from aclgrad.core.memory import workspace as scratch_memory
from aclgrad.core.plan import Operator, Plan
from aclgrad.core.spec import BF16, F16, F32

HEAD_START = 4_000_000  # cycles that the GPU sleeps while the host launches the steps
SAMPLES = 7
DTYPES = {"float16": F16, "bfloat16": BF16, "float32": F32}
LOG_WIDTH = 150


@dataclass(frozen=True)
class Point:
    """One layer of H units over T steps of N sequences."""

    dtype: str
    forward: bool
    T: int
    N: int
    H: int
    D: int


@dataclass(frozen=True)
class Timed:
    """A way at a point: microseconds a step by its model, on the GPU, and of the host that launches it."""

    point: Point
    way: str
    modelled: float
    measured: float
    host: float

    def row(self) -> dict[str, Any]:
        """For a file: the point's sizes beside the figures, of which three digits are more than the noise allows."""
        times = {"modelled_us": self.modelled, "gpu_us": self.measured, "host_us": self.host}
        return {**asdict(self.point), "way": self.way, **{name: float(f"{us:.3g}") for name, us in times.items()}}


def drawn(seed: int, count: int, dtypes: Sequence[str], largest: float) -> Iterator[Point]:
    """Sizes drawn log-uniformly; both passes of each."""
    chance = random.Random(seed)  # noqa: S311  sizes, not secrets

    def size(low: int, high: int) -> int:
        return round(math.exp(chance.uniform(math.log(low), math.log(high))))

    for _ in range(count):
        hidden, batch, both = size(64, 4096), size(1, 1024), chance.random() < 0.25
        if chance.random() < 0.7:
            hidden = max(64, hidden // 32 * 32)
        if hidden * hidden * batch > largest:
            continue
        for dtype in dtypes:
            for forward in (True, False):
                yield Point(dtype, forward, 48, batch, hidden, 1 + both)


def arguments(point: Point) -> tuple[Operator, list[Any]]:
    """An operator with a plan of its own, and what to call it with."""
    from aclgrad.ops.lstm import cases, cases_lstm, spec
    from aclgrad.testing.cases import Case

    make = cases_lstm._lstm if point.forward else cases._lstm
    operator = spec.lstm if point.forward else spec.lstm_backward
    case = Case("point", make(point.T, point.N, point.H, point.H, directions=point.D), (DTYPES[point.dtype],))
    return Operator(operator.spec), case.build(DTYPES[point.dtype])


class Seen(Exception):
    """Ends planning where the chooser has its candidates."""

    def __init__(self, candidates: list[Any]) -> None:
        super().__init__()
        self.candidates = candidates


def candidates(point: Point) -> list[Any]:
    """The candidates that the chooser sees at a point, the one that it takes first."""
    from aclgrad.ops.lstm.triton import choose

    def look(found: list[Any]) -> Any:
        raise Seen(found)

    operator, args = arguments(point)
    with mock.patch.object(choose, "cheapest", look):
        try:
            operator.plan(args, backend="triton")
        except Seen as seen:
            return sorted(seen.candidates, key=lambda candidate: candidate.microseconds)
    return []  # there are no steps


def planned(point: Point, way: Any) -> tuple[Plan, list[Any]]:
    """The plan of a point by a way, whatever the models say; this compiles."""
    from aclgrad.ops.lstm.triton import choose

    def force(found: list[Any]) -> Any:
        chosen = next((candidate for candidate in found if candidate.way == way), None)
        return choose.Choice((chosen or found[0]).way, (chosen or found[0]).microseconds)

    operator, args = arguments(point)
    with mock.patch.object(choose, "cheapest", force):
        return operator.plan(args, backend="triton"), args


class Stopwatch:
    """Stands for a recurrence, and times it."""

    def __init__(self, recurrence: Any) -> None:
        self.recurrence = recurrence
        self.gpu: list[float] = []
        self.host: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recurrence, name)

    def __call__(self, *args: Any) -> None:
        cuda: Any = torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(HEAD_START)
        begin.record()
        started = time.perf_counter()
        self.recurrence(*args)
        self.host.append(time.perf_counter() - started)
        end.record()
        torch.cuda.synchronize()
        self.gpu.append(begin.elapsed_time(end) / 1e3)


def timed(point: Point, candidate: Any) -> Timed:
    """Microseconds a step of one way at one point."""
    with torch.device("cuda"):
        plan, args = planned(point, candidate.way)
        layer = plan.launch._launch.layers[0]  # type: ignore[attr-defined]  # of the GPU's launches
        watch = layer.recurrence = Stopwatch(layer.recurrence)
        outs = plan.allocate()
        memory = scratch_memory(plan.workspace_size, plan.device)
        for _ in range(SAMPLES):
            plan.launch(args, outs, memory)
    scale = 1e6 / point.T
    gpu, host = median(watch.gpu[1:]) * scale, median(watch.host[1:]) * scale
    return Timed(point, candidate.way.describe(), candidate.microseconds, gpu, host)


def _compile(point: Point) -> None:
    with torch.device("cuda"):
        for candidate in candidates(point):
            planned(point, candidate.way)
    torch.cuda.empty_cache()


def measure(points: Sequence[Point], workers: int, console: Console, seconds: float) -> list[Timed]:
    """All ways at all points, compiled beforehand by `workers` processes; stops after so many seconds."""
    begin = time.monotonic()
    if workers:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            list(pool.map(_compile, points))
        console.print(f"compiled in {time.monotonic() - begin:.0f} s")
    found: list[Timed] = []
    for point in points:
        if time.monotonic() - begin > seconds:
            console.print(f"stopped at {point}")
            break
        with torch.device("cuda"):
            ways = candidates(point)
        found += [timed(point, candidate) for candidate in ways]
        torch.cuda.empty_cache()
    return found


def show(found: Sequence[Timed], console: Console) -> None:
    """A row for each point: the chosen way first, then the others by time."""
    table = Table("point", "chosen", "modelled", "measured", "host", "fastest", "measured", "host", "loss")
    losses = []
    for point in dict.fromkeys(timed.point for timed in found):
        ways = [timed for timed in found if timed.point == point]
        chosen, fastest = ways[0], min(ways, key=lambda timed: timed.measured)
        losses.append(chosen.measured / fastest.measured)
        name = f"{point.dtype} {'forward' if point.forward else 'gradient'} N{point.N} H{point.H} D{point.D}"
        table.add_row(
            name, chosen.way, f"{chosen.modelled:.1f}", *_times(chosen), fastest.way, *_times(fastest),
            f"{losses[-1]:.2f}",
        )  # fmt: skip
    console.print(table)
    if losses:
        console.print(
            f"the choice takes {geometric_mean(losses):.3f} times the fastest way's time, {max(losses):.2f} at worst"
        )


def _times(timed: Timed) -> list[str]:
    return [f"{timed.measured:.1f}", f"{timed.host:.1f}"]


def main() -> None:
    """Draw, measure, show and, if asked to, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ways", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--dtype", action="append", choices=list(DTYPES))
    parser.add_argument("--workers", type=int, default=0, help="processes that compile before anything is timed")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no further point is measured")
    parser.add_argument("--largest", type=float, default=4e9, help="leave out points with more than this N · H²")
    parser.add_argument("--json", type=Path, help="file for all timings")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    points = list(drawn(options.seed, options.points, options.dtype or ["float16"], options.largest))
    found = measure(points, options.workers, console, options.seconds)
    show(found, console)
    if options.json:
        lines = [json.dumps(timed.row(), ensure_ascii=False) for timed in found]
        options.json.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
