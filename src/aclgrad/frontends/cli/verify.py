"""aclgrad verify: the verdict on somebody's outputs, with an exit code that says it, too."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ...core.errors import AclgradError, BadDump, InvalidArgument
from ...core.plan import Operator
from ...core.registry import operators
from ...testing.precision.kinds import RULE
from ...testing.precision.standards import LEVELS, standards
from ...testing.report.forms import FORMS
from ...testing.report.model import INCOMPARABLE, Report
from ...testing.report.terminal import show
from ...testing.vendor import LISTS
from ...testing.verification.listed import verify_cases
from ...testing.verification.verify import verify as judge
from ..tables import wide_console
from .names import find, require_backend


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
    atk: Annotated[Path | None, typer.Option(help="Instead of inputs: a list of cases of ATK's, a JSON file.")] = None,
    ttk: Annotated[Path | None, typer.Option(help="Instead of inputs: a list of cases of TTK's, a CSV file.")] = None,
    backend: Annotated[
        str | None, typer.Option(help="With a list and without --dump: the backend to judge; the best one without it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="With a list: the seed of the values that are drawn.")] = 0,
) -> None:
    """Judge outputs of an operator: exit code 0 right, 1 not precise enough, 2 cannot compare."""
    with _no_verdict():
        _verify(name, dump, inputs, baseline, standard, level, report or (), call, atk, ttk, backend, seed)


@contextmanager
def _no_verdict() -> Iterator[None]:
    """Whatever is raised ends with 2: Python's own exit code would read as a verdict."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except AclgradError as refusal:
        typer.echo(f"aclgrad: {refusal}", err=True)
        raise typer.Exit(INCOMPARABLE) from None
    except Exception:  # noqa: BLE001  whatever it is, it is no verdict
        traceback.print_exc()
        typer.echo("aclgrad: nothing was judged: this is an error of aclgrad itself", err=True)
        raise typer.Exit(INCOMPARABLE) from None


def _verify(
    name: str,
    dump: Path | None,
    inputs: Path | None,
    baseline: Path | None,
    standard: str,
    level: str,
    report: Sequence[Path],
    call: str | None,
    atk: Path | None,
    ttk: Path | None,
    backend: str | None,
    seed: int,
) -> None:
    operator, console = find(name, operators), wide_console()
    for value, known, flag in ((standard, list(standards()), "--standard"), (level, LEVELS, "--level")):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is unknown, expected one of {', '.join(known)}", param_hint=flag)
    for path in report:
        if path.suffix not in FORMS:
            raise typer.BadParameter(f"{path} ends with none of {', '.join(FORMS)}", param_hint="--report")
    lists = {"atk": atk, "ttk": ttk}
    if given := {kind: path for kind, path in lists.items() if path is not None}:
        if len(given) > 1 or inputs or baseline or call:
            raise typer.BadParameter("a list of cases stands alone or with --dump", param_hint="--atk, --ttk")
        _verify_list(console, operator, given, dump, backend, seed, standard, level, report)
        return
    if dump is None or backend is not None:
        raise typer.BadParameter("expected a folder of outputs, or a list of cases", param_hint="--dump, --atk, --ttk")
    try:
        with console.status("reading") as status:
            found = judge(
                operator, inputs, dump, standard=standard, level=level, baseline=baseline, call=call,
                tell=lambda output: status.update(f"measuring {output}"),
            )  # fmt: skip
    except BadDump as fault:
        found = Report.of_fault(operator.spec, standard, level, str(fault))
    finish(console, found, report)


def _verify_list(
    console: Console,
    operator: Operator,
    given: Mapping[str, Path],
    dump: Path | None,
    backend: str | None,
    seed: int,
    standard: str,
    level: str,
    paths: Sequence[Path],
) -> None:
    (kind, path) = next(iter(given.items()))
    if backend is not None:
        require_backend(backend, [operator], "cuda" if backend == "triton" else "cpu")
    try:
        cases = LISTS[kind](operator, path)
    except InvalidArgument as mistake:
        raise typer.BadParameter(str(mistake), param_hint=f"--{kind}") from None
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(cases))

        def tell(name: str) -> None:
            progress.update(task, description=f"{operator.spec.name} {name}", advance=1)

        found = verify_cases(
            operator, cases, outputs=dump, backend=backend, seed=seed, standard=standard, level=level, tell=tell
        )
    finish(console, found, paths)


def finish(console: Console, found: Report, paths: Sequence[Path]) -> None:
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
