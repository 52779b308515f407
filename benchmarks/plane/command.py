"""`python -m benchmarks plane`."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from aclgrad.core.meta import dtype_name
from aclgrad.core.spec import BF16, F16, F32

from .. import machine
from ..device import DEVICES
from ..gate import Gate
from ..quiet import Patience
from ..timing import QUICK
from .measure import Result, checked_aside, measured
from .points import FAMILIES, drawn, grid
from .show import save, show

RESULTS = Path(__file__).parents[1] / "results" / "plane"
DTYPES = {dtype_name(dtype): dtype for dtype in (F32, F16, BF16)}
GRID = "grid"
LOG_WIDTH = 150


def main(argv: Sequence[str]) -> int:
    """Exit status: 1 if a gate is red, else 0, whoever is faster."""
    options = _options().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    kind = DEVICES[options.device]
    patience = Patience(options.wait)
    device = kind(replace(QUICK, patience=patience), options.compiled)
    dtypes = [DTYPES[name] for name in options.dtype or ()]
    if options.seed == GRID:
        points = list(grid(device.kind, dtypes))
    else:
        points = list(drawn(options.family, int(options.seed), options.points, device.kind, dtypes))
    results: list[Result] = []
    gates: dict[int, Gate] = {}
    end = time.monotonic() + options.seconds
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        if options.processes > 1:
            task = progress.add_task("checking", total=len(points))
            for k, gate in checked_aside(points, device.kind, options.processes):
                gates[k] = gate
                progress.advance(task)
        task = progress.add_task("", total=len(points))
        for k, point in enumerate(points):
            if results and time.monotonic() > end:
                console.print(f"{len(results)} of {len(points)} points in {options.seconds:.0f} seconds")
                break
            progress.update(task, description=str(point))
            results.append(measured(point, device, device.effort, gates.get(k)))
            progress.advance(task)
    show(results, device.kind, console)
    if options.save:
        described = machine.describe(device)
        path = options.results / f"{machine.slug(described)}-{options.family}-{options.seed}.json"
        save(results, described, options.seed, path)
        try:
            from .heatmap import draw
        except ImportError as missing:
            console.print(f"no picture: {missing}")
        else:
            draw(results, machine.title(described), path.with_suffix(".png"))
        console.print(f"saved {path.name}")
    return 0 if all(result.gate.passed for result in results) else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks plane", description=__doc__)
    parser.add_argument("--family", required=True, choices=list(FAMILIES))
    parser.add_argument("--seed", default="0", help=f"a number, or {GRID!r}: fixed sizes of one LSTM layer")
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--dtype", action="append", choices=list(DTYPES), help="may be given several times")
    parser.add_argument("--device", default="cpu", choices=list(DEVICES))
    parser.add_argument("--compiled", action="store_true", help="torch.compile takes part; it compiles for minutes")
    parser.add_argument(
        "--wait", type=float, default=120.0, metavar="SECONDS", help="to lose to other programs, in all"
    )
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further point is begun")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="check in so many at once, which compiles kernels, first"
    )
    parser.add_argument("--save", action="store_true", help="write figures and picture")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    return parser
