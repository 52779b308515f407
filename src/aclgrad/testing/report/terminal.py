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
FEW = 6  # calls that are shown in full
MOST = 8  # elements that are listed of an output


def show(report: Report, console: Console | None = None) -> None:
    """Print the report."""
    console = console or wide_console()
    standard = standard_named(report.standard)
    if len(report.calls) > FEW:
        _show_many(console, report)
    else:
        for call in report.calls:
            _show_call(console, report, call)
    level = f" at level {report.level}" if "L0" in standard.figures else ""
    colour = COLOURS[report.exit_code]
    console.print(f"[bold {colour}]{report.verdict}[/] by the standard {standard.name}{level}: {standard.title}")


def _show_many(console: Console, report: Report) -> None:
    """A line in all, and in full what is not right."""
    wrong = [
        call for call in report.calls if call.troubles or not all(each.ok(report.standard) for each in call.outputs)
    ]
    for call in wrong[:FEW]:
        _show_call(console, report, call)
    if len(wrong) > FEW:
        console.print(f"… and {len(wrong) - FEW} more that are not right: write a report to see them")
    console.print(f"[bold]{len(report.calls) - len(wrong)} of {len(report.calls)} cases are right[/]")


def _show_call(console: Console, report: Report, call: CallReport) -> None:
    title = f"{report.operator} {call.name}".strip()
    rows = [_row(report, output) for output in call.outputs]
    if rows:
        headings = ("output", "dtype", "shape", "largest error", "in ulp of its value", "holds", "")
        show_table(console, title, headings, rows, right=headings[3:6])
    for problem in call.problems:
        console.print(f"[yellow]{problem}[/]", highlight=False)
    for output in call.outputs:
        _show_trouble(console, report, output)


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


def _show_trouble(console: Console, report: Report, output: OutputReport) -> None:
    """Why an output is wrong, and its worst elements with the inputs that made them."""
    if output.problem is not None:
        console.print(f"[yellow]{output.name}: {output.problem}[/]", highlight=False)
        return
    judgement = output.judgements[report.standard]
    if judgement.ok is not False:
        return
    why = "; ".join(map(str, broken(judgement)))
    console.print(f"[red]{output.name}: {why}[/]", highlight=False)
    rows = [
        (
            str(list(output.index(bad.place))), f"{bad.found:.9g}", f"{bad.true:.9g}", f"{bad.ulp:.3g}",
            "\n".join(f"{maker.where} = {maker.value:.6g}" for maker in output.makers.get(bad.place, ())),
        )
        for bad in worst_of(output)[:MOST]
    ]  # fmt: skip
    headings = ("at", "found", "expected", "ulp", "made of")
    show_table(console, f"the worst elements of {output.name}", headings, rows, right=headings[1:4])
