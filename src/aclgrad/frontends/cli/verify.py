"""aclgrad verify: the verdict on somebody's outputs, with an exit code that says it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ...core.errors import BadDump, InvalidArgument
from ...testing.precision.kinds import RULE
from ...testing.precision.standards import LEVELS, standards
from ...testing.report.forms import FORMS
from ...testing.report.model import INCOMPARABLE, Report
from ...testing.report.terminal import show
from ...testing.verification.verify import verify as judge
from ..tables import wide_console
from .names import find


def verify(
    name: Annotated[str, typer.Argument(help="An operator, by its Python or its aclnn name.")],
    dump: Annotated[
        Path | None, typer.Option(help="The folder of outputs: plain files, or a dump of msprobe's.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help="The folder of inputs, if it is another one.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="The same outputs of another implementation, for standards that compare with one."),
    ] = None,
    standard: Annotated[str, typer.Option(help=f"One of {', '.join(standards())}.")] = RULE,
    level: Annotated[str, typer.Option(help=f"Of the standards that have levels: {', '.join(LEVELS)}.")] = LEVELS[0],
    report: Annotated[
        list[Path] | None, typer.Option(help=f"A file to write, ending with {', '.join(FORMS)}; may be repeated.")
    ] = None,
    call: Annotated[str | None, typer.Option(help="One call of a dump of msprobe's, by its name.")] = None,
) -> None:
    """Judge outputs of an operator: exit code 0 right, 1 not precise enough, 2 cannot compare."""
    operator, console = find(name, every=True), wide_console()
    for value, known, flag in ((standard, list(standards()), "--standard"), (level, LEVELS, "--level")):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is unknown, expected one of {', '.join(known)}", param_hint=flag)
    for path in report or ():
        if path.suffix not in FORMS:
            raise typer.BadParameter(f"{path} ends with none of {', '.join(FORMS)}", param_hint="--report")
    if dump is None:
        raise typer.BadParameter("expected a folder of outputs", param_hint="--dump")
    try:
        with console.status("reading") as status:
            found = judge(
                operator, inputs, dump, standard=standard, level=level, baseline=baseline, call=call,
                tell=lambda output: status.update(f"measuring {output}"),
            )  # fmt: skip
    except BadDump as fault:
        found = Report.of_fault(operator.spec, standard, level, str(fault))
    finish(console, found, report or ())


def finish(console: Console, found: Report, paths: list[Path] | tuple[()]) -> None:
    """Show a report, write it where it is wanted, and leave with its exit code."""
    show(found, console)
    for path in paths:
        try:
            found.write(path)
        except (OSError, InvalidArgument) as fault:
            typer.echo(f"aclgrad: {path} cannot be written: {fault}", err=True)
            raise typer.Exit(INCOMPARABLE) from None
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    raise typer.Exit(found.exit_code)
