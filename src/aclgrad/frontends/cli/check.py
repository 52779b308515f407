"""aclgrad check: run a program under the checker; its findings decide the exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..acl import formats, journal, suppressions
from ..acl.findings import VARIABLE, Kind, merged

FOUND = 1
SIGNALLED = 128


def check(
    command: Annotated[
        list[str],
        typer.Argument(
            help="The program and its arguments, behind --; a .py file runs with this Python.", metavar="COMMAND"
        ),
    ],
    report: Annotated[
        list[Path] | None, typer.Option(help="Also write what was found to FILE.json, FILE.xml (JUnit) or FILE.txt.")
    ] = None,
    suppress: Annotated[
        list[Path] | None, typer.Option(help="A file of known findings: on each line a kind and a place, as patterns.")
    ] = None,
    exit_code: Annotated[int, typer.Option(help="The exit status if anything was found.", min=0, max=255)] = FOUND,
) -> None:
    """Run a program that uses acl or aclnn under the checker. No findings: the exit status is the program's own."""
    for path in report or ():
        if path.suffix not in formats.FORMATS:
            raise typer.BadParameter(
                f"{path.name} is no {', '.join(formats.FORMATS)}, expected one of these", param_hint="--report"
            )
        if not path.parent.is_dir():
            raise typer.BadParameter(f"{path} has no folder to be written to", param_hint="--report")
    known = tuple(line for path in suppress or () for line in _known(path))
    with tempfile.TemporaryDirectory(prefix="aclgrad-check-") as folder:
        ended = _run(command, Path(folder))
        was_checked = any(Path(folder).iterdir())
        found = merged(journal.read(Path(folder)))
    if ended < 0:  # killed, as its status tells
        found = tuple(finding for finding in found if finding.kind is not Kind.NOT_FINALISED)
    status = SIGNALLED - ended if ended < 0 else ended  # as a shell has it
    counting, accepted, unused = suppressions.divide(found, known)
    outcome = formats.Outcome(command, status, counting, accepted)
    for path in report or ():
        try:
            path.write_text(formats.FORMATS[path.suffix](outcome), encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be written: {error}", param_hint="--report") from None
    typer.echo(formats.as_text(outcome) if was_checked else _unchecked(command[0]), err=True, nl=False)
    for line in unused:
        typer.echo(f"aclgrad: {line.source}: nothing was found for {line.kind} {line.place}", err=True)
    raise typer.Exit(exit_code if counting else status)


def _unchecked(program: str) -> str:
    return f"aclgrad: nothing was checked: {program} has not called aclInit of aclgrad\n"


def _known(path: Path) -> tuple[suppressions.Suppression, ...]:
    try:
        return suppressions.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--suppress") from None


def _run(command: list[str], folder: Path) -> int:
    """The exit status of a program that keeps a journal in a folder; negative for the signal that killed it."""
    words = [sys.executable, *command] if command[0].endswith(".py") else command
    environment = {**os.environ, VARIABLE: "1", journal.VARIABLE: str(folder)}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program gets it, too, and decides
    try:
        return subprocess.call(words, env=environment, preexec_fn=_with_interrupts)  # noqa: S603
    except OSError as error:
        raise typer.BadParameter(f"{words[0]} cannot be run: {error}", param_hint="COMMAND") from None
    finally:
        signal.signal(signal.SIGINT, before)


def _with_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
