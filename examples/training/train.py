"""Train the same models with torch's modules and with aclgrad's, from the same seed, and compare.

    python examples/training/train.py --steps 200 --out curves.png

Prints a table of loss, time and memory; draws the loss curves side by side.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on the terminal; read when torch is imported

import torch
from models import CharacterLSTM, Transformer, converted
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from text import Text
from torch import nn

MODELS = {"LSTM": CharacterLSTM, "transformer": Transformer}
BATCH, STEPS, RATE = 8, 48, 3e-3


@dataclass
class Run:
    """What one training showed."""

    model: str
    modules: str
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of a step, the median
    peak: int = 0  # bytes at the worst moment of a step, beyond the parameters


def built(kind: type[nn.Module], text: Text, seed: int, ours: bool) -> nn.Module:
    """The model of this seed, with torch's modules or with ours."""
    torch.manual_seed(seed)
    model = kind(len(text.alphabet))
    return converted(model) if ours else model


def train(run: Run, model: nn.Module, text: Text, steps: int, seed: int, advance) -> None:
    """Adam on random windows of the text; the same ones for every run."""
    dice = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    times = []
    for _ in range(steps):
        x, target = text.batch(dice, BATCH, STEPS)
        start = time.perf_counter()
        optimiser.zero_grad()
        loss = model(x, target)
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
        run.losses.append(loss.item())
        advance()
    run.seconds = sorted(times)[len(times) // 2]


def peak_bytes(model: nn.Module, text: Text) -> int:
    """What torch's allocator has handed out at the worst moment of a forward and backward pass."""
    batch = text.batch(torch.Generator().manual_seed(0), BATCH, STEPS)
    model(*batch).backward()  # what is kept for good is there before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        acc_events=True,  # there is one cycle; torch 2.11 warns without this
    ) as seen:
        model(*batch).backward()
    model.zero_grad()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def compare(steps: int, seed: int, console: Console) -> list[Run]:
    """All runs, torch's before ours."""
    text = Text(seed)
    runs = [Run(name, modules) for name in MODELS for modules in ("torch.nn", "aclgrad.nn")]
    with Progress(console=console) as progress:
        for run in runs:
            task = progress.add_task(f"{run.model}, {run.modules}", total=steps)
            model = built(MODELS[run.model], text, seed, run.modules == "aclgrad.nn")
            run.peak = peak_bytes(model, text)
            train(run, model, text, steps, seed, lambda task=task: progress.advance(task))
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

    figure, panels = pyplot.subplots(2, len(MODELS), figsize=(11, 5.5), height_ratios=(3, 1), sharex=True)
    for column, name in enumerate(MODELS):
        theirs, ours = (run.losses for run in runs if run.model == name)
        upper, lower = panels[0][column], panels[1][column]
        upper.plot(theirs, color="#c9cdd4", linewidth=5, label="torch.nn")
        upper.plot(ours, color="#b3261e", linewidth=1.2, label="aclgrad.nn")
        upper.set(title=f"character {name}", ylabel="loss" if column == 0 else None)
        upper.legend(frameon=False)
        lower.plot([abs(a - b) for a, b in zip(theirs, ours, strict=True)], ".", color="#44546a", markersize=3)
        lower.set(xlabel="step", ylim=(1e-8, 1e-4), yscale="log", ylabel="difference" if column == 0 else None)
        for panel in (upper, lower):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.25)
    figure.suptitle("The same seed, torch's modules and aclgrad's")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="training steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="the picture of the loss curves")
    options = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the picture needs matplotlib: pip install '.[plot]' where aclgrad was cloned")
    console = Console()
    runs = compare(options.steps, options.seed, console)
    console.print(table(runs))
    draw(runs, options.out)
    console.print(f"loss curves: {options.out}")


if __name__ == "__main__":
    main()
