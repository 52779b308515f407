"""aclgrad warm: compile ahead what first calls would wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...core.errors import NoBackend
from ...core.first_calls import compiled, untold
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import operators
from ...core.words import counted
from ...testing.cases import BENCH, BENCH_GPU, REAL, Case, suite
from ...testing.layouts import LAYOUTS, apply
from ..tables import wide_console
from .names import device as chosen_device


def families() -> list[str]:
    """The families there are."""
    return sorted({_family(operator) for operator in operators()})


def _family(operator: Operator) -> str:
    return operator.spec.package.rpartition(".")[2]


def warm(
    family: Annotated[list[str] | None, typer.Option(help="A family, as lstm; all without it.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="A dtype, as bfloat16; all without it.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the best one present without it.")] = None,
) -> None:
    """Compile kernels ahead, for images and CI: first calls then find them. ACLGRAD_CACHE says where they are kept."""
    place = chosen_device(device)
    for name in family or ():
        if name not in families():
            raise typer.BadParameter(f"{name!r} is no family, expected {', '.join(families())}", param_hint="--family")
    chosen = [operator for operator in operators() if not family or _family(operator) in family]
    known = sorted({dtype_name(found) for operator in chosen for _, found in _cases(operator)})
    for name in dtype or ():
        if name not in known:
            raise typer.BadParameter(f"{name!r} is no dtype here, expected {', '.join(known)}", param_hint="--dtype")
    tasks = [
        (operator, case, found)
        for operator in chosen
        for case, found in _cases(operator)
        if not dtype or dtype_name(found) in dtype
    ]
    console = wide_console()
    before = len(compiled)
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with untold(), Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        for operator, case, found in tasks:
            progress.update(bar, description=f"{operator.spec.name} {dtype_name(found)}")
            _plan(operator, case, found, place)
            progress.advance(bar)
    made = len(compiled) - before
    told = f"{counted(made, 'CPU kernel')} compiled, the others were there" if place == "cpu" else "all compiled"
    console.print(f"{', '.join(family or families())}: {counted(len(tasks), 'call')} planned, {told}")


def _cases(operator: Operator) -> Iterator[tuple[Case, torch.dtype]]:
    for case in suite(operator.spec).cases:
        if not case.tags & {BENCH, BENCH_GPU, REAL}:
            for dtype in case.dtypes:
                yield case, dtype


def _plan(operator: Operator, case: Case, dtype: torch.dtype, place: str) -> None:
    """Kernels are compiled when a call is planned; other layouts may have others."""
    with torch.device(place):
        args = case.build(dtype)
    for layout in (torch.Tensor.clone, LAYOUTS["strided"]):
        try:
            operator.plan([apply(layout, arg) for arg in args])
        except NoBackend:  # not for this dtype on this device
            return
