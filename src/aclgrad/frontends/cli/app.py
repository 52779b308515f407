"""aclgrad list | explain | demo | verify | cc | config | capi."""

from __future__ import annotations

import os
from typing import Annotated

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

import aclgrad

from ...core.backends import BACKENDS
from ...core.errors import NoBackend
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import lookup, operators
from ...core.spec import Out, OutList, Tensor
from ...testing.cases import suite
from .native import add_commands
from .runs import demo_runs, report, verify_runs, wide_console

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="CANN's aclnn gradient operators on every machine.",
)


def _version(wanted: bool) -> None:
    if wanted:
        Console().print(f"aclgrad {aclgrad.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """CANN's aclnn gradient operators on every machine."""


@app.command("list")
def list_operators() -> None:
    """The operators, their aclnn names and dtypes."""
    table = Table(
        "operator", "aclnn function", "dtypes (aclnn)", "also in Python", title="aclgrad operators", box=box.SIMPLE_HEAD
    )
    for operator in operators():
        main = operator.spec.params[suite(operator.spec).main]
        assert isinstance(main, Tensor)  # our own cases
        table.add_row(
            operator.spec.name,
            operator.spec.aclnn,
            ", ".join(map(dtype_name, main.dtypes)),
            ", ".join(map(dtype_name, main.generous)),
        )
    wide_console().print(table)


@app.command()
def explain(name: Annotated[str, typer.Argument(help="An operator, as `aclgrad list` names it.")]) -> None:
    """One operator's contract: arguments in the document's order, dtypes, backends here."""
    operator = _find(name)
    spec = operator.spec
    table = Table(
        "parameter",
        "in the document",
        "kind",
        "dtypes (aclnn)",
        "also in Python",
        title=f"{spec.name} = {spec.aclnn}",
        box=box.SIMPLE_HEAD,
    )
    for param in (*spec.args, *spec.outs):
        typed = param if isinstance(param, Tensor | Out | OutList) else None
        table.add_row(
            param.name,
            param.aclnn,
            type(param).__name__,
            ", ".join(map(dtype_name, typed.dtypes)) if typed else "",
            ", ".join(map(dtype_name, typed.generous)) if typed else "",
        )
    console = wide_console()
    console.print(f"[bold]{spec.name}[/]: {spec.summary}")
    console.print(table)
    case = suite(spec).cases[0]
    for backend in BACKENDS:
        try:
            plan = operator.plan(case.build(), backend=backend)
        except NoBackend as refusal:
            console.print(f"backend [yellow]{refusal.reasons}[/]")
        else:
            console.print(
                f"backend {backend}: [green]runs here[/] (workspace of case {case.name!r}: {plan.workspace_size} bytes)"
            )


Device = Annotated[str | None, typer.Option(help="cpu or cuda; the best one present without it.")]


@app.command()
def demo(device: Device = None) -> None:
    """Run all operators through the aclnn door, on the documents' inputs and on realistic ones, against float64."""
    chosen = _device(device)
    os.environ["ACLGRAD_DEVICE"] = chosen  # where the door's device memory is
    if not report(demo_runs(chosen), title="Every operator through the aclnn door, checked against float64"):
        raise typer.Exit(1)


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="An operator; all without it.")] = None,
    backend: Annotated[str | None, typer.Option(help="The backend to judge; the best one without it.")] = None,
    device: Device = None,
    every: Annotated[bool, typer.Option("--every", help="Show every run, not one line for each operator.")] = False,
) -> None:
    """Judge a backend on every named case and dtype by the tolerance rule; all operators take minutes."""
    chosen = list(operators()) if name is None else [_find(name)]
    place = "cpu" if device is None and backend == "cpu" else _device(device)
    if not report(
        verify_runs(chosen, backend, place),
        title="Verdict: within 2 × a naive run's error + 4 ulp of float64",
        brief=not every,
    ):
        raise typer.Exit(1)


def _device(wanted: str | None) -> str:
    present = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    if wanted is not None and wanted not in present:
        raise typer.BadParameter(f"{wanted!r} is not to be had, expected one of {', '.join(present)}")
    return wanted or present[0]


def _find(name: str) -> Operator:
    try:
        return lookup(name)
    except KeyError:
        known = ", ".join(operator.spec.name for operator in operators())
        raise typer.BadParameter(f"{name!r} is no operator, expected one of {known}") from None


add_commands(app)


def main() -> None:
    """Entry point."""
    app()
