"""The report as a markdown table between two markers of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from .machine import title
from .report import OURS, Regime, Report, Row
from .terminal import SHORT_DTYPES, mib, quantity, seconds, unit_of
from .timing import Timing

LEFT, RIGHT = "---", "---:"
COLUMNS = {
    "Operator": LEFT, "Case": LEFT, "dtype": LEFT, "Time": RIGHT, "Peer": LEFT, "Peer's time": RIGHT,
    "Faster by": RIGHT, "Of the bound": RIGHT, "Cold": RIGHT, "Extra MiB": RIGHT, "Peer's": RIGHT,
}  # fmt: skip


def render(report: Report, whole: bool = True) -> str:
    """A line about the machine, one table row per case with its dtypes side by side, then overhead and the summary.

    Without `whole` only the rows that a bar is about, and those whose gate is red.
    """
    lines = [title(report.machine), "", _line(list(COLUMNS)), _line(list(COLUMNS.values()))]
    shown = ""
    rows_to_show = [row for row in report.rows if whole or row.main is None or report.bars_of(row.key)]
    for (operator, _), group in groupby(rows_to_show, key=lambda row: (row.operator, row.case)):
        rows = list(group)
        lines.append(_line([f"`{operator}`" if operator != shown else "", *_case(rows)]))
        shown = operator
    lines += ["", *_overhead(report), "", report.summary()]
    missed = [f"{j.key} {j.says} (seen {quantity(j.quantity, j.value)})" for j in report.bars if j.met is False]
    if missed:
        lines += ["", "Missed: " + "; ".join(missed) + "."]
    return "\n".join(lines) + "\n"


def _case(rows: Sequence[Row]) -> list[str]:
    peer = next((row.main.peer for row in rows if row.main), None) or ""
    return [
        rows[0].case,
        _each(rows, lambda row: SHORT_DTYPES[row.dtype]),
        _times([row.main.ours if row.main else None for row in rows]),
        peer,
        _times([row.main.peers.get(peer) if row.main else None for row in rows]),
        _each(rows, lambda row: _speedup(row.main)),
        _each(rows, lambda row: _share(row.main)),
        _each(rows, lambda row: _speedup(row.cold)),
        _each(rows, lambda row: mib(row.extra_bytes.get(OURS))),
        _each(rows, lambda row: mib(row.extra_bytes.get(peer))),
    ]


def _speedup(regime: Regime | None) -> str:
    return f"{regime.speedup:.2f}×" if regime and regime.speedup else ""


def _share(regime: Regime | None) -> str:
    return f"{regime.share_of_bound:.2f}" if regime and regime.share_of_bound else ""


def _each(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    """The dtypes' cells side by side; once if they are all the same."""
    cells = [cell(row) for row in rows]
    return cells[0] if len(set(cells)) == 1 else " / ".join(cell or "–" for cell in cells)


def _times(timings: Sequence[Timing | None]) -> str:
    """Medians side by side in the unit of the smallest."""
    known = [timing.median for timing in timings if timing]
    if not known:
        return "gate red"
    unit, scale = unit_of(min(known))
    cells = [_digits(timing.median / scale) if timing else "gate red" for timing in timings]
    return f"{' / '.join(cells)} {unit}"


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _overhead(report: Report) -> list[str]:
    tiny = ", ".join(f"{item.name} {seconds(item.timing.median)}" for item in report.overhead)
    turns = [
        f"Taking turns, {item.name}: {_tail(item.ours)}; {item.peer_name}: {_tail(item.peer)}."
        for item in report.alternation
    ]
    return [f"A call on a tiny tensor: {tiny}.", *turns] if tiny else turns


def _tail(timing: Timing) -> str:
    return f"median {seconds(timing.median)}, p99 {seconds(timing.p99)}, worst {seconds(timing.worst)}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def insert(report: Report, path: Path) -> None:
    """Replace what stands between the markers of the report's kind of device."""
    text = path.read_text()
    start, end = markers(report.machine["kind"])
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise SystemExit(f"{path.name} has no {start} … {end}, expected one pair")
    before, rest = text.split(start)
    path.write_text(f"{before}{start}\n{render(report, whole=False)}{end}{rest.split(end)[1]}")


def insert_newest(folder: Path, page: Path) -> list[str]:
    """Put the newest report of each kind of device into its place; returns the files' names."""
    newest: dict[str, tuple[str, str, Report]] = {}
    for path in sorted(folder.glob("*.json")):
        report = Report.load(path)
        kind, date = report.machine["kind"], report.machine["date"]
        newest[kind] = max(newest.get(kind, ("", "", report)), (date, path.name, report), key=lambda found: found[:2])
    for _, _, report in newest.values():
        insert(report, page)
    return [name for _, name, _ in newest.values()]


def markers(kind: str) -> tuple[str, str]:
    """Between which the table of a kind of device stands."""
    return f"<!-- bench {kind}: start -->", f"<!-- bench {kind}: end -->"
