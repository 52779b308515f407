"""The report as a markdown page, and in brief between two markers of a file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from .machine import title
from .report import OURS, Regime, Report, Row
from .terminal import SHORT_DTYPES, mib, quantity, seconds, unit_of
from .timing import Timing

WIDTH = 120  # columns of the text
LEFT, RIGHT = "---", "---:"
COLUMNS = {
    "Operator": LEFT, "Case": LEFT, "dtype": LEFT, "Time": RIGHT, "Peer": LEFT, "Peer's time": RIGHT,
    "Faster by": RIGHT, "Of the bound": RIGHT, "Cold": RIGHT, "Extra MiB": RIGHT, "Peer's": RIGHT,
}  # fmt: skip


def render(report: Report) -> str:
    """A line about the machine, one table row per case with its dtypes side by side, then overhead and the summary."""
    lines = [title(report.machine), "", _line(list(COLUMNS)), _line(list(COLUMNS.values()))]
    shown = ""
    for (operator, _), group in groupby(report.rows, key=lambda row: (row.operator, row.case)):
        rows = list(group)
        lines.append(_line([f"`{operator}`" if operator != shown else "", *_case(rows)]))
        shown = operator
    missed = _missed(report)
    for text in (*_overhead(report), report.summary(), f"Missed: {missed}." if missed else ""):
        lines += ["", *textwrap.wrap(text, WIDTH, break_on_hyphens=False)] if text else []
    return "\n".join(lines) + "\n"


def brief(report: Report, page: str) -> str:
    """An item of a list: the machine, the summary and what was missed, with a link to the page of all rows."""
    missed = _missed(report)
    text = f"**{title(report.machine)}**; [all rows]({page}). {report.summary().capitalize()}."
    if missed:
        text += f" Missed: {missed}."
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _missed(report: Report) -> str:
    return "; ".join(f"{j.key} {j.says} (seen {quantity(j.quantity, j.value)})" for j in report.bars if j.met is False)


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


def insert(report: Report, page: str, path: Path) -> None:
    """Replace what stands between the markers of the report's kind of device."""
    text = path.read_text()
    start, end = markers(report.machine["kind"])
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise SystemExit(f"{path.name} has no {start} … {end}, expected one pair")
    before, rest = text.split(start)
    path.write_text(f"{before}{start}\n{brief(report, page)}{end}{rest.split(end)[1]}")


def newest(folder: Path) -> dict[str, Report]:
    """The newest report of each kind of device, by the name of its file without the ending."""
    found: dict[str, tuple[str, str, Report]] = {}
    for path in sorted(folder.glob("*.json")):
        report = Report.load(path)
        kind, date = report.machine["kind"], report.machine["date"]
        found[kind] = max(found.get(kind, ("", "", report)), (date, path.stem, report), key=lambda entry: entry[:2])
    return {name: report for _, name, report in found.values()}


def markers(kind: str) -> tuple[str, str]:
    """Between which the figures of a kind of device stand."""
    return f"<!-- bench {kind}: start -->", f"<!-- bench {kind}: end -->"
