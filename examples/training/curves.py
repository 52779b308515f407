"""Trainings of a model with torch's modules and with aclgrad's, from the same seed: losses, time, memory, a picture."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on the terminal; read when torch is imported

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn


@dataclass(frozen=True)
class Task:
    """A model and what it learns from."""

    name: str
    model: Callable[[], nn.Module]  # of torch's modules; returns the loss of a batch
    converted: Callable[[nn.Module], nn.Module]  # the same with ours
    batch: Callable[[torch.Generator], Sequence[Any]]
    rate: float = 3e-3

    def built(self, seed: int, ours: bool) -> nn.Module:
        """The model of this seed, with torch's modules or with ours."""
        torch.manual_seed(seed)
        model = self.model()
        return self.converted(model) if ours else model


@dataclass
class Run:
    """What one training showed."""

    model: str
    modules: str
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of a step, the median
    peak: int = 0  # bytes at the worst moment of a step, beyond the parameters


def train(run: Run, model: nn.Module, task: Task, steps: int, seed: int, advance: Callable[[], None]) -> None:
    """Adam on batches that are the same ones, as are the random numbers of dropout, for every run."""
    dice = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=task.rate)
    dtype = next(model.parameters()).dtype
    times = []
    for _ in range(steps):
        batch = [value.to(dtype) if _is_real(value) else value for value in task.batch(dice)]
        start = time.perf_counter()
        optimiser.zero_grad()
        loss = model(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        times.append(time.perf_counter() - start)
        run.losses.append(loss.item())
        advance()
    run.seconds = sorted(times)[len(times) // 2]


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def peak_bytes(model: nn.Module, task: Task) -> int:
    """What torch's allocator has handed out at the worst moment of a forward and backward pass."""
    batch, kept = task.batch(torch.Generator().manual_seed(0)), {k: v.clone() for k, v in model.state_dict().items()}
    model(*batch).backward()  # what is kept for good is there before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        acc_events=True,  # there is one cycle; torch 2.11 warns without this
    ) as seen:
        model(*batch).backward()
    model.zero_grad()
    model.load_state_dict(kept)  # running statistics have seen the batch
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def compare(tasks: Sequence[Task], steps: int, seed: int, console: Console) -> list[Run]:
    """All runs, torch's before ours."""
    runs = []
    with Progress(console=console) as progress:
        for task in tasks:
            for modules in ("torch.nn", "aclgrad.nn"):
                shown = progress.add_task(f"{task.name}, {modules}", total=steps)
                model, run = task.built(seed, modules == "aclgrad.nn"), Run(task.name, modules)
                run.peak = peak_bytes(model, task)
                train(run, model, task, steps, seed, lambda shown=shown: progress.advance(shown))  # type: ignore[misc]
                runs.append(run)
    return runs


def table(runs: list[Run]) -> Table:
    """Loss, time and memory of every run."""
    shown = Table("model", "modules", "first", "last", "apart", "ms/step", "MiB/step")
    torchs = {run.model: run for run in runs if run.modules == "torch.nn"}
    for run in runs:
        apart = max(abs(a - b) for a, b in zip(run.losses, torchs[run.model].losses, strict=True))
        shown.add_row(
            run.model, run.modules, f"{run.losses[0]:.4f}", f"{run.losses[-1]:.4f}",
            "" if run is torchs[run.model] else f"{apart:.1e}", f"{1e3 * run.seconds:.1f}", f"{run.peak / 2**20:.1f}",
        )  # fmt: skip
    return shown


def draw(runs: list[Run], path: Path) -> None:
    """Loss curves, a panel for each model, and under it how far ours is from torch's (nothing where they are equal)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(run.model for run in runs))
    figure, panels = pyplot.subplots(
        2, len(names), figsize=(max(11, 4 * len(names)), 5.5), height_ratios=(3, 1), sharex="col", squeeze=False
    )
    for column, name in enumerate(names):
        theirs, ours = (run.losses for run in runs if run.model == name)
        upper, lower = panels[0][column], panels[1][column]
        upper.plot(theirs, color="#c9cdd4", linewidth=5, label="torch.nn")
        upper.plot(ours, color="#b3261e", linewidth=1.2, label="aclgrad.nn")
        upper.set(title=name, ylabel="loss" if column == 0 else None)
        upper.legend(frameon=False)
        lower.plot([abs(a - b) for a, b in zip(theirs, ours, strict=True)], ".", color="#44546a", markersize=3)
        lower.set(xlabel="step", ylim=(1e-8, 1), yscale="log", ylabel="difference" if column == 0 else None)
        for panel in (upper, lower):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.25)
    figure.suptitle("The same seed, torch's modules and aclgrad's")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
