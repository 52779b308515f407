"""aclgrad golden: what a kernel elsewhere is to be fed with, and what it should answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from ...core.errors import BadDump, InvalidArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import operators
from ...frontends.dumps.files import FORMATS
from ...testing.cases import Data, suite
from ...testing.data.calls import Call, drawn, of_case
from ...testing.data.described import arguments, dtype_named, read_arguments
from ...testing.data.dumps import read_manifest
from ...testing.data.golden import MANIFEST, MSPROBE, bytes_of, write_golden
from ...testing.vendor import ADAPTERS
from ..tables import show, wide_console
from .names import find

KINDS = (*FORMATS, MSPROBE, *ADAPTERS)


def golden(
    name: Annotated[str, typer.Argument(help="An operator, by its Python or its aclnn name.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write into; for plain data it must be empty, or hold such.")
    ] = None,
    case: Annotated[str | None, typer.Option(help="A named case; the operator's first without it.")] = None,
    args: Annotated[Path | None, typer.Option(help="A JSON file that describes the arguments.")] = None,
    random: Annotated[int | None, typer.Option(help="So many calls with sizes and options drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of whatever is drawn.")] = 0,
    dtype: Annotated[str | None, typer.Option(help="The dtype of the main argument, such as float16.")] = None,
    data_format: Annotated[str, typer.Option("--format", help=f"The files: {', '.join(KINDS)}.")] = FORMATS[0],
    cases: Annotated[bool, typer.Option("--cases", help="List the named cases, and write nothing.")] = False,
) -> None:
    """Write a call's inputs, its true outputs in float64 and rounded, and a manifest.

    With --format ttk or atk: the files that CANN's test kits TTK and ATK load, which compute the outputs themselves.
    """
    operator, console = find(name, operators), wide_console()
    if cases:
        rows = [
            (case.name, ", ".join(map(dtype_name, case.dtypes)), ", ".join(sorted(case.tags)))
            for case in suite(operator.spec).cases
        ]
        show(console, operator.spec.name, ("--case", "--dtype", "used as"), rows)
        return
    if out is None:
        raise typer.BadParameter("expected a folder to write into", param_hint="--out")
    if data_format not in KINDS:
        raise typer.BadParameter(
            f"{data_format!r} is unknown, expected one of {', '.join(KINDS)}", param_hint="--format"
        )
    chosen = [flag for flag, value in (("--case", case), ("--args", args), ("--random", random)) if value is not None]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} exclude each other", param_hint=chosen[-1])
    if random is not None and random < 1:
        raise typer.BadParameter(f"{random} calls, expected at least 1", param_hint="--random")
    try:
        kind = None if dtype is None else dtype_named(dtype)
        calls = _calls(operator, case, args, random, kind, seed)
        if data_format in ADAPTERS:
            written = ADAPTERS[data_format](operator, calls, out)
            console.print(f"wrote {', '.join(str(path) for path in written)}", highlight=False, soft_wrap=True)
            return
        _clear(out)
        _write(console, operator, calls, out, data_format)
    except (InvalidArgument, OSError) as mistake:
        raise typer.BadParameter(str(mistake)) from None


def _calls(
    operator: Operator, case: str | None, args: Path | None, count: int | None, dtype: torch.dtype | None, seed: int
) -> list[Call]:
    if args is not None:
        if dtype is not None:
            raise InvalidArgument(f"{args.name} says the dtype of each tensor, expected no --dtype", "dtype")
        values = arguments(operator.spec, read_arguments(args), Data(seed=seed))
        return [Call(args.stem, {"args": args.name, "seed": seed}, values)]
    if count is not None:
        return list(drawn(operator, count, dtype, seed))
    return [of_case(operator, case, dtype, seed)]


def _clear(out: Path) -> None:
    """Make room: what another run wrote is replaced, anything else stays as it is and is told."""
    if not out.exists():
        return
    if not out.is_dir():
        raise BadDump(f"{out} is a file, expected a folder")
    inside = sorted(out.rglob("*"))
    manifests = [path for path in inside if path.name == MANIFEST and read_manifest(path.parent) is not None]
    folders = {path.parent for path in manifests}
    foreign = [path for path in inside if path.is_file() and not any(folder in path.parents for folder in folders)]
    if foreign:
        raise BadDump(f"{out} holds {foreign[0].relative_to(out)}, expected an empty folder or one of golden data")
    for path in reversed(inside):
        path.rmdir() if path.is_dir() else path.unlink()


def _write(console: Console, operator: Operator, calls: Iterable[Call], out: Path, data_format: str) -> None:
    calls = list(calls)
    columns = (TextColumn("{task.description:<32}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=sum(bytes_of(operator, call.args) for call in calls))
        for call in calls:
            place = out if len(calls) == 1 else out / call.name
            progress.update(task, description=f"{operator.spec.name} {call.name}")
            write_golden(
                operator, call.args, place, data_format, origin=call.origin,
                tell=lambda nbytes: progress.advance(task, nbytes),
            )  # fmt: skip
    several = f"{len(calls)} calls, each in a folder of its own, " if len(calls) > 1 else ""
    console.print(f"wrote {several}to {out}: inputs, the truth (golden.*), {MANIFEST}", highlight=False, soft_wrap=True)
    outputs = ", ".join(f"{operator.spec.params[word].aclnn}" for word in operator.spec.written_names)
    console.print(
        f"next: let your kernel read the inputs and write its outputs ({outputs}) as files of these names into another "
        f"folder, then\n  aclgrad verify {operator.spec.name} --inputs {out} --dump THAT_FOLDER",
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
