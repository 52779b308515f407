"""What `demo` and `selftest` run: cases through a door, timed, judged against float64, shown as a table."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ...core.backends import BACKENDS, widen
from ...core.memory import tensors_in
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import aclnn_operators
from ...testing.cases import BENCH, BENCH_GPU, DOCUMENT, REAL, Case, is_documented, suite
from ...testing.layouts import apply
from ...testing.program import run as run_program
from ...testing.verdicts import own, verdicts
from ...testing.verdicts import run as run_python
from ..tables import show, wide_console

REPEATS = 5
PRINTED_DIGITS = 1e-6  # the documents' programs print with %f


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    operator: str
    input: str
    dtype: str
    backend: str
    status: int
    ulp: float
    ok: bool
    seconds: float
    plain_seconds: float


@dataclass(frozen=True)
class Answer:
    """What a door gave back."""

    status: int
    backend: str
    written: list[Any]
    seconds: float


Run = tuple[str, Callable[[], Row]]


def demo_runs(device: str) -> list[Run]:
    """Every operator's document example and realistic cases in the documented dtypes, through the aclnn door."""
    return [
        (f"{operator.spec.name} {case.name}", partial(_row, operator, case, dtype, device, run_through_aclnn))
        for operator in aclnn_operators()
        for case in suite(operator.spec).cases
        if case.tags & {DOCUMENT, REAL}
        for dtype in case.dtypes
        if is_documented(operator.spec, case, dtype)
    ]


def run_through_aclnn(operator: Operator, args: Sequence[Any]) -> Answer:
    """Calls on device memory and handles; the first one compiles and warms up."""
    plan = operator.plan(args)
    host_args, host_outs = ([apply(torch.Tensor.cpu, value) for value in values] for values in (args, plan.allocate()))
    status, written, seconds = run_program(operator, host_args, host_outs, 1 + REPEATS)
    written = [apply(lambda result: result.to(plan.device), value) for value in written]
    return Answer(status, plan.backend, written, statistics.median(seconds[1:]))


def selftest_runs(chosen: Sequence[Operator], backend: str | None, device: str) -> list[Run]:
    """Every case but the benchmarks' in every dtype, through the Python door."""

    def through_python(operator: Operator, args: Sequence[Any]) -> Answer:
        plan = operator.plan(args, backend=backend)
        written = run_python(operator, args, backend)
        mine = own(operator.spec, args)
        seconds = statistics.median(_timed(lambda: operator(*mine, backend=backend)) for _ in range(REPEATS))
        return Answer(0, plan.backend, written, seconds)

    return [
        (f"{operator.spec.name} {case.name}", partial(_row, operator, case, dtype, device, through_python))
        for operator in chosen
        for case in suite(operator.spec).cases
        if not case.tags & {BENCH, BENCH_GPU}
        for dtype in case.dtypes
        if backend != "triton" or dtype != torch.float64  # which it refuses
    ]


def _row(
    operator: Operator, case: Case, dtype: torch.dtype, device: str, door: Callable[[Operator, Sequence[Any]], Answer]
) -> Row:
    with torch.device(device):
        args = case.build(dtype)
    answer = door(operator, args)
    formula = getattr(importlib.import_module(f"{operator.spec.package}.reference"), operator.spec.name)
    plain_args = [widen(arg, dtype) for arg in args]
    plain_seconds = statistics.median(_timed(lambda: formula(*plain_args)) for _ in range(3))
    judged = [verdict for _, verdict in verdicts(operator.spec, args, answer.written, dtype)]
    printed = [] if case.expected is None else tensors_in(case.expected())
    as_printed = all(
        bool(((result.float().cpu() - want.float()).abs() <= PRINTED_DIGITS).all())
        for result, want in zip(tensors_in(answer.written), printed, strict=False)
    )
    return Row(
        operator=operator.spec.name,
        input=f"{_shape(args)} {case.name if not case.tags & {REAL, BENCH} else ''}".strip(),
        dtype=dtype_name(dtype),
        backend=answer.backend,
        status=answer.status,
        ulp=max((verdict.ulp for verdict in judged), default=0.0),
        ok=answer.status == 0 and as_printed and all(verdict.ok for verdict in judged),
        seconds=answer.seconds,
        plain_seconds=plain_seconds,
    )


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _shape(args: Sequence[Any]) -> str:
    """The shape that tells the problem's size: of the first tensor with more than one dimension."""
    return next(("×".join(map(str, t.shape)) for t in tensors_in(args) if t.dim() > 1), "")


def report(runs: Sequence[Run], title: str, *, brief: bool = False) -> bool:
    """Run with a progress bar, print the table, and say whether all holds; in brief, only what does not is shown."""
    console = wide_console()
    rows = list(_progress(console, runs))
    if brief:
        show(console, title, ("operator", "dtypes", "runs", "largest error", ""), list(_by_operator(rows)))
    shown = [row for row in rows if not (brief and row.ok)]
    if shown:
        heading = "What is wrong" if brief else title
        show(console, heading, COLUMNS, [_by_run(row) for row in shown], right=NUMBERS)
    wrong = sum(not row.ok for row in rows)
    backends = ", ".join(name for name in BACKENDS if any(row.backend == name for row in rows))
    console.print(
        f"[bold]{len(rows) - wrong} of {len(rows)} runs hold[/] on backend {backends}.\n"
        "error: the largest, in ulp of the result's scale, against float64"
    )
    if shown:
        console.print("time: both phases, median   speed-up: over the same formula in plain PyTorch and the same dtype")
    return wrong == 0


def _by_operator(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for operator in dict.fromkeys(row.operator for row in rows):
        mine = [row for row in rows if row.operator == operator]
        wrong = sum(not row.ok for row in mine)
        yield (
            operator, ", ".join(dict.fromkeys(row.dtype for row in mine)), str(len(mine)),
            _ulp(max(row.ulp for row in mine)), f"[red]{wrong} WRONG[/]" if wrong else "[green]ok[/]",
        )  # fmt: skip


NUMBERS = ("status", "error", "time", "speed-up")
COLUMNS = ("operator", "input", "dtype", "backend", *NUMBERS, "")


def _by_run(row: Row) -> tuple[str, ...]:
    return (
        row.operator, row.input, row.dtype, row.backend, str(row.status),
        _ulp(row.ulp), _duration(row.seconds), f"{row.plain_seconds / row.seconds:.1f}×",
        "[green]ok[/]" if row.ok else "[red]WRONG[/]",
    )  # fmt: skip


def _progress(console: Console, runs: Sequence[Run]) -> Iterator[Row]:
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(runs))
        for label, run in runs:
            progress.update(task, description=label)
            yield run()
            progress.advance(task)


def _duration(seconds: float) -> str:
    return (
        f"{seconds * 1e6:.0f} µs"
        if seconds < 1e-3
        else f"{seconds * 1e3:.2f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
    )


def _ulp(error: float) -> str:
    return f"{error:.2f} ulp" if error < 1e6 else f"{error:.0e} ulp"
