"""`python -m benchmarks`: measure, judge, show, save."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import machine, markdown, terminal
from .bars import BARS, judge
from .device import DEVICES, Device
from .overhead import alternation, overhead
from .plane.command import main as plane
from .quiet import Patience
from .report import Report
from .runner import jobs, run
from .sweep import SWEEPS, sweep
from .timing import QUICK, Effort
from .training import train, trainings

RESULTS = Path(__file__).parent / "results"
EVERYTHING = "*"
T = TypeVar("T")

LOG_WIDTH = 190  # columns of a log file, which has no width of its own to fit into


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a gate is red, 2 if no row matches, else 0, also where a bar is missed."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["plane"]:
        return plane(words[1:])
    options = _options().parse_args(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    if options.readme is not None:
        show_newest(options.results, options.readme, console)
        return 0
    kind = DEVICES[options.device]
    effort = QUICK if options.quick else replace(kind.thorough, patience=Patience(options.wait))
    device = kind(replace(QUICK, patience=effort.patience), options.compiled)
    report = measure(device, options.only, effort, console)
    if not report.quantities() and not report.red:
        console.print(f"no row matches {options.only!r}; keys are operator/case/dtype, overhead and alternation")
        return 2
    terminal.show(report, console)
    if options.update:
        report = updated(options.results / f"{machine.slug(report.machine)}.json", report, device.kind)
    if options.update or (options.only == EVERYTHING and not options.quick):
        keep(report, options.results, console)
    return 1 if report.red else 0


def measure(device: Device, only: str, effort: Effort, console: Console) -> Report:
    """Everything whose name contains the pattern."""
    whole = only == EVERYTHING
    brief = replace(QUICK, patience=effort.patience)
    report = Report({})
    steps: list[tuple[str, Callable[[], object]]] = [
        (job.key, partial(_append, report.rows, run, job, device, effort)) for job in jobs(device.kind, only)
    ]
    steps += [
        (row.key, partial(_append, report.rows, train, row, device, effort)) for row in trainings(device.kind, only)
    ]
    if whole or only in "overhead":
        steps.append(("overhead", lambda: report.overhead.extend(overhead(device, effort))))
    if device.kind == "cpu" and (whole or only in "alternation"):
        steps.append(("alternation with torch.mm", lambda: report.alternation.extend(alternation(device, effort))))
    if whole:
        steps += [(f"sweep of {name}", partial(_append, report.sweeps, sweep, name, device, brief)) for name in SWEEPS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("measuring the machine", total=len(steps) + 1)
        report.machine = machine.describe(device)
        for name, step in steps:
            progress.update(task, advance=1, description=name)
            step()
    report.bars = judge(BARS[device.kind], report.quantities(), whole)
    return report


def _append(found: list[T], measure: Callable[..., T], *args: object) -> None:
    found.append(measure(*args))


def keep(report: Report, folder: Path, console: Console) -> None:
    """Write the JSON, the whole table and, where matplotlib is installed, the picture beside it."""
    path = folder / f"{machine.slug(report.machine)}.json"
    report.save(path)
    report = Report.load(path)  # whoever shows these figures again shows the same digits
    path.with_suffix(".md").write_text(markdown.render(report))
    try:
        from .plot import draw
    except ImportError as missing:
        console.print(f"no picture: {missing}")
    else:
        draw(report, path.with_suffix(".png"))
    console.print(f"saved {path.name} in {folder.name}/")


def updated(path: Path, found: Report, kind: str) -> Report:
    """The saved report with the rows that were measured again, and new ones behind the others."""
    saved = Report.load(path)
    rows = {row.key: row for row in saved.rows} | {row.key: row for row in found.rows}
    report = replace(saved, rows=list(rows.values()))
    report.bars = judge(BARS[kind], report.quantities())
    return report


def show_newest(folder: Path, page: Path, console: Console) -> None:
    """Put the newest report of each kind of device between its markers, and draw them all beside their files."""
    from .overview import draw

    reports = markdown.newest(folder)
    for name, report in reports.items():
        markdown.insert(report, os.path.relpath(folder / f"{name}.md", page.parent), page)
        console.print(f"{page} shows {name}")
    draw(list(reports.values()), folder / "overview.png")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="`python -m benchmarks plane -h`: sizes drawn at random",
    )
    parser.add_argument("--only", default=EVERYTHING, metavar="PATTERN", help="rows whose key contains this: cell*B64")
    parser.add_argument("--quick", action="store_true", help="few samples: a look, not a result; nothing is saved")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="to lose to other programs, in all")
    parser.add_argument("--device", default="cpu", choices=list(DEVICES))
    parser.add_argument("--compiled", action="store_true", help="torch.compile takes part; it compiles for minutes")
    parser.add_argument("--update", action="store_true", help="put the measured rows into this machine's saved report")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON and pictures")
    parser.add_argument(
        "--readme", type=Path, nargs="?", const=machine.ROOT / "README.md", metavar="FILE",
        help="measure nothing; put the newest saved figures of each kind of device between its markers in FILE",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
