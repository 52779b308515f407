"""The report as tables on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .machine import title
from .quiet import CALM
from .report import OURS, Report, Row

MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "dim")}
COLUMNS = (
    "operator", "case", "dtype", "backend", "gate", "ours", "p90", "peer", "time", "p90", "peer/ours", "of bound",
    "cold: peer/ours", "of bound", "MiB", "peer's", "bar",
)  # fmt: skip
NUMBERS = {"ours", "p90", "time", "peer/ours", "of bound", "cold: peer/ours", "MiB", "peer's"}
SHORT_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


def show(report: Report, console: Console) -> None:
    """All tables and the summary line."""
    if report.rows:
        console.print(_rows(report))
    for row in report.red:
        console.print(f"[red]gate red[/red] {row.key}: {row.gate.text}")
    if report.overhead or report.alternation:
        console.print(_others(report))
    if report.bars:
        console.print(_bars(report))
    if report.disturbance > CALM:
        share = f"up to {report.disturbance:.0%} of the machine's time during a row"
        console.print(f"[yellow]other programs took {share}: such times are noisy, also as ratios[/yellow]")
    console.print(Text(report.summary(), style="bold red" if report.red else "bold"))


def _rows(report: Report) -> Table:
    table = Table(title=title(report.machine), title_justify="left", header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    previous = None
    for row in report.rows:
        if previous not in (None, row.operator):
            table.add_section()
        table.add_row("" if previous == row.operator else row.operator, *_cells(row, report))
        previous = row.operator
    return table


def _cells(row: Row, report: Report) -> list[str | Text]:
    head: list[str | Text] = [row.case, SHORT_DTYPES[row.dtype], row.backend]
    if row.main is None:
        return [*head, Text("red", style="bold red")]
    main = row.main
    cells = [*head, Text("ok", style="green"), seconds(main.ours.median), seconds(main.ours.p90)]
    if main.peer is None:
        cells += ["", "", "", ""]
    else:
        peer = main.peers[main.peer]
        cells += [main.peer, seconds(peer.median), seconds(peer.p90), _faster(main.speedup)]
    cells += [
        "" if main.share_of_bound is None else f"{main.share_of_bound:.2f} {main.bound_by}",
        _faster(row.cold.speedup if row.cold else None),
        "" if row.cold is None or row.cold.share_of_bound is None else f"{row.cold.share_of_bound:.2f}",
        mib(row.extra_bytes.get(OURS)),
        mib(row.extra_bytes.get(main.peer or "")),
        Text("\n").join(_verdict(judged.says, judged.met) for judged in report.bars_of(row.key)),
    ]
    return cells


def _others(report: Report) -> Table:
    table = Table(title="overhead on a tiny tensor, and taking turns with torch.mm", title_justify="left")
    for name in ("what", "median", "p90", "p99", "worst", "samples"):
        table.add_column(name, justify="left" if name == "what" else "right")
    timings = [(item.name, item.timing) for item in report.overhead]
    for item in report.alternation:
        timings += [(item.name, item.ours), (item.peer_name, item.peer)]
    for name, timing in timings:
        numbers = (timing.median, timing.p90, timing.p99, timing.worst)
        table.add_row(name, *map(seconds, numbers), str(timing.samples))
    return table


def _bars(report: Report) -> Table:
    table = Table(title="bars", title_justify="left")
    for name in ("row", "bar", "seen", ""):
        table.add_column(name)
    for judged in report.bars:
        mark, style = MARKS[judged.met]
        table.add_row(judged.key, judged.says, quantity(judged.quantity, judged.value), Text(mark, style=style))
    return table


def _verdict(says: str, met: bool | None) -> Text:
    mark, style = MARKS[met]
    return Text(f"{mark} {says}", style=style)


def _faster(speedup: float | None) -> Text:
    if speedup is None:
        return Text("")
    return Text(f"{speedup:.2f}×", style="green" if speedup >= 1 else "yellow")


def quantity(name: str, value: float | None) -> str:
    """A bar's value in its unit."""
    if value is None:
        return "not measured"
    if name == "extra_bytes":
        return f"{mib(value)} MiB"
    if name == "share_of_bound":
        return f"{value:.3f}"
    return f"{value:.2f}×" if name in ("speedup", "ratio") or name.startswith("times ") else seconds(value)


def unit_of(value: float) -> tuple[str, float]:
    """The unit of time that suits a number of seconds, and its length."""
    return next(((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e-3)) if value >= scale), ("µs", 1e-6))


def seconds(value: float) -> str:
    """With the unit that suits it."""
    unit, scale = unit_of(value)
    return f"{value / scale:.3g} {unit}"


def mib(count: float | None) -> str:
    """Bytes in MiB."""
    if count is None:
        return ""
    value = count / (1 << 20)
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value == 0 or value >= 0.01 else "<0.01"
