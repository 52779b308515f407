"""aclgrad list | explain | demo | golden | verify | selftest | warm | cc | config | check | capi."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Annotated

import torch
import typer
from rich.console import Console

import aclgrad

from ...core.backends import BACKENDS
from ...core.devices import GPUS
from ...core.errors import InvalidArgument, NoBackend, Unsupported
from ...core.meta import dtype_name
from ...core.registry import aclnn_operators, operators
from ...core.spec import Out, OutList, Tensor
from ...testing.cases import sized, suite
from ..tables import show, wide_console
from .explained import explain_sizes, sizes_in_words
from .golden import golden
from .names import device as chosen_device
from .names import find, require_backend
from .native import add_commands
from .runs import demo_runs, report, selftest_runs
from .streams import polite
from .verify import verify
from .warm import warm

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="CANN's aclnn gradient operators on every machine.",
)


DTYPES = ("dtypes (aclnn)", "also in Python")


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
    rows = []
    for operator in aclnn_operators():
        main = operator.spec.params[suite(operator.spec).main]
        assert isinstance(main, Tensor)  # our own cases
        rows.append((operator.spec.name, operator.spec.aclnn, _listed(main.dtypes), _listed(main.generous)))
    show(wide_console(), "aclgrad operators", ("operator", "aclnn function", *DTYPES), rows)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="An operator, by its Python or its aclnn name.")],
    shape: Annotated[
        list[str] | None, typer.Option(help="Sizes, as T=64,N=128 or x=32x64: which kernel runs them, and why?")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="With sizes: the dtype, such as float16.")] = None,
    backend: Annotated[str | None, typer.Option(help="With sizes: the backend; the one that runs without it.")] = None,
    device: Annotated[
        str | None, typer.Option(help=f"With sizes: cpu, cuda or a GPU that need not be here: {', '.join(GPUS)}.")
    ] = None,
    options: Annotated[list[str] | None, typer.Option("--set", help="With sizes: an option, as layers=2.")] = None,
) -> None:
    """One operator's contract, or with sizes the plan: which kernel runs them, and why."""
    operator = find(name, operators)
    console = wide_console()
    if shape:
        explain_sizes(console, operator, shape, options or (), dtype, backend, device)
        return
    for flag, value in (("--dtype", dtype), ("--backend", backend), ("--device", device), ("--set", options)):
        if value:
            raise typer.BadParameter(f"needs sizes: {sizes_in_words(operator)}", param_hint=flag)
    spec = operator.spec
    rows = []
    for param in (*spec.args, *spec.outs):
        typed = (param.dtypes, param.generous) if isinstance(param, Tensor | Out | OutList) else ((), ())
        rows.append((param.name, param.aclnn, type(param).__name__, *map(_listed, typed)))
    console.print(f"[bold]{spec.name}[/]: {spec.summary}")
    show(
        console, f"{spec.name} = {spec.aclnn or 'no document'}", ("parameter", "in the document", "kind", *DTYPES), rows
    )
    case = suite(spec).cases[0]
    for candidate in BACKENDS:
        try:
            plan = operator.plan(case.build(), backend=candidate)
        except NoBackend as refusal:
            console.print(f"backend [yellow]{refusal.reasons}[/]")
        else:
            workspace = f"workspace of case {case.name!r}: {plan.workspace_size} bytes"
            console.print(f"backend {candidate}: [green]runs here[/] ({workspace})")
    if sized(spec) is not None:
        console.print(f"[bold]which kernel runs, and why:[/] aclgrad explain {spec.name} {sizes_in_words(operator)}")


def _listed(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(map(dtype_name, dtypes))


Device = Annotated[str | None, typer.Option(help="cpu or cuda; the best one present without it.")]


@app.command()
def demo(device: Device = None) -> None:
    """Run all operators through the aclnn door, on the documents' inputs and on realistic ones, against float64."""
    chosen = chosen_device(device)
    os.environ["ACLGRAD_DEVICE"] = chosen  # where the door's device memory is
    if not report(demo_runs(chosen), title="Every operator through the aclnn door, checked against float64"):
        raise typer.Exit(1)


@app.command()
def selftest(
    name: Annotated[str | None, typer.Argument(help="An operator; all without it.")] = None,
    backend: Annotated[str | None, typer.Option(help="The backend to judge; the best one without it.")] = None,
    device: Device = None,
    every: Annotated[bool, typer.Option("--every", help="Show every run, not one line for each operator.")] = False,
) -> None:
    """Judge our own backends on every named case and dtype by the tolerance rule; all operators take minutes."""
    chosen = list(aclnn_operators()) if name is None else [find(name)]
    place = "cpu" if device is None and backend == "cpu" else chosen_device(device)
    if backend is not None:
        require_backend(backend, chosen, place)
    if not report(
        selftest_runs(chosen, backend, place),
        title="Verdict: within 2 × a naive run's error + 4 ulp of float64",
        brief=not every,
    ):
        raise typer.Exit(1)


app.command(name="golden")(golden)
app.command(name="verify")(verify)
app.command(name="warm")(warm)
add_commands(app)


def main() -> None:
    """Entry point. What the contracts refuse is told in a line, as every other mistake is."""
    with polite():
        try:
            app()
        except (InvalidArgument, Unsupported) as refusal:
            sys.exit(f"aclgrad: {refusal}")
