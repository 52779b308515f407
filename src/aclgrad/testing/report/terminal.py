"""The report in a terminal: a line for each output, then what is wrong and where."""

from __future__ import annotations

from rich.console import Console

from ...core.meta import dtype_name
from ...frontends.tables import show as show_table
from ...frontends.tables import wide_console
from ..precision.measures import max_error, max_ulp
from ..precision.standards import standard_named
from .model import CallReport, OutputReport, Report, broken, worst_of

COLOURS = ("green", "red", "yellow")  # of the exit codes
MOST, MORE = 6, 2  # elements that are listed of the first wrong output, and of each other one


def show(report: Report, console: Console | None = None) -> None:
    """Print the report."""
    console = console or wide_console()
    standard = standard_named(report.standard)
    if report.tally:
        _show_tally(console, report)
    first = next((call for call in report.shown if not all(each.ok(report.standard) for each in call.outputs)), None)
    for call in report.shown:
        _show_call(console, report, call, MOST if call is first else 0)
    hidden = len(report.wrong) - len(report.shown)
    if hidden > 0:
        console.print(f"… and {hidden} more calls that are not right: a report in a file has them")
    if len(report.calls) > len(report.shown) and not report.tally:
        console.print(f"[bold]{len(report.calls) - len(report.wrong)} of {len(report.calls)} cases are right[/]")
    level = f" at level {report.level}" if "L0" in standard.figures else ""
    colour = COLOURS[report.exit_code]
    console.print(f"[bold {colour}]{report.verdict}[/] by the standard {standard.name}{level}: {standard.title}")


def _show_tally(console: Console, report: Report) -> None:
    """A line for each check."""
    rows = [
        (check, f"{calls}", f"{wrong or ''}", "[red]WRONG[/]" if wrong else "[green]right[/]")
        for check, calls, wrong in report.tally
    ]
    rows += [(check, "", "", f"[yellow]left out: {why}[/]") for check, why in report.left_out.items()]
    show_table(console, report.operator, ("check", "calls", "wrong", ""), rows, right=("calls", "wrong"))


def _show_call(console: Console, report: Report, call: CallReport, most: int) -> None:
    title = f"{call.check}: {call.name}" if call.check else f"{report.operator} {call.name}".strip()
    rows = [_row(report, output) for output in call.outputs]
    if rows:
        headings = ("output", "dtype", "shape", "max error", "max ulp", "standards", "")
        show_table(console, title, headings, rows, right=headings[3:6])
    where = f"{title}: " if call.name and not rows else ""  # else the table has said it
    for fault in call.faults:
        console.print(f"[red]{where}{fault}[/]", highlight=False)
    for problem in call.problems:
        console.print(f"[yellow]{where}{problem}[/]", highlight=False)
    for note in call.notes:
        console.print(note, highlight=False)
    _show_others(console, report, call)
    for output in call.outputs:
        _show_trouble(console, report, output, most)
        if most and not output.ok(report.standard):
            most = MORE


def _show_others(console: Console, report: Report, call: CallReport) -> None:
    """Which outputs are right, but not by other standards."""
    refused: dict[tuple[str, ...], list[str]] = {}
    for output in call.outputs:
        if output.ok(report.standard):
            others = tuple(name for name, judgement in output.judgements.items() if judgement.ok is False)
            refused.setdefault(others, []).append(output.name)
    for others, names in refused.items():
        if others:
            console.print(f"[dim]not by {', '.join(others)}: {', '.join(names)}[/]", highlight=False)


def _row(report: Report, output: OutputReport) -> tuple[str, ...]:
    kind = "" if output.dtype is None else dtype_name(output.dtype)
    shape = "×".join(map(str, output.shape)) or "one number"
    if output.problem is not None:
        return output.name, kind, shape, "", "", "", "[yellow]cannot compare[/]"
    errors = ("", "") if output.found is None else tuple(f"{output.found[m()]:.3g}" for m in (max_error, max_ulp))
    if output.found is None:
        errors = (f"{output.unequal} unequal", "")
    judged = [judgement.ok for judgement in output.judgements.values() if judgement.ok is not None]
    holds = f"{sum(judged)} of {len(judged)}"
    mine = output.judgements[report.standard].ok
    said = "[yellow]no figures[/]" if mine is None else "[green]right[/]" if mine else "[red]WRONG[/]"
    return output.name, kind, shape, *errors, holds, said


def _show_trouble(console: Console, report: Report, output: OutputReport, most: int) -> None:
    """Why an output is wrong, and its worst elements with the inputs that made them."""
    if output.problem is not None:
        console.print(f"[yellow]{output.name}: {output.problem}[/]", highlight=False)
        return
    judgement = output.judgements[report.standard]
    if judgement.ok is not False:
        return
    why = "; ".join(map(str, broken(judgement)))
    console.print(f"[red]{output.name}: {why}[/]", highlight=False)
    places = () if output.places is None else output.places.beyond(output.allowed)
    for told in places:
        console.print(f"[red]errors beyond what our rule allows lie only in {told}[/]", highlight=False)
    rows = [
        (
            str(list(output.index(bad.place))), f"{bad.found:.9g}", f"{bad.true:.9g}", f"{bad.ulp:.3g}",
            "\n".join(f"{maker.where} = {maker.value:.6g}" for maker in output.makers.get(bad.place, ())),
        )
        for bad in worst_of(output)[:most]
    ]  # fmt: skip
    headings = ("at", "found", "expected", "ulp", "made of")
    if rows:
        show_table(console, f"the worst elements of {output.name}", headings, rows, right=headings[1:4])
