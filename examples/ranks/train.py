"""Train two models on 1, 2 and 4 processes: the same losses at every step.

    python examples/ranks/train.py --steps 120 --out curves.png          # starts torchrun for each number of processes
    torchrun --standalone --nproc-per-node 2 examples/ranks/train.py     # one of them

A transformer whose vocabulary is split over the processes, and a convolutional net whose batch is, with batch norm over
all of it. The gradients of the former's input are summed by the head, those of the latter by DistributedDataParallel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from models import Transformer, converted
from text import Text

import aclgrad.nn

PROCESSES = (1, 2, 4)
BATCH, LETTERS, SIDE, CLASSES = 8, 32, 12, 6
RATE = 3e-3


def split_vocabulary(steps: int) -> Iterator[float]:
    """The transformer of the other example; every process has some rows of its head, and all see the same batches."""
    text = Text(seed=0)
    torch.manual_seed(0)
    model = converted(Transformer(len(text.alphabet)))
    model.head = aclgrad.nn.VocabParallelLinearCrossEntropyLoss.from_whole(model.head)
    dice = torch.Generator().manual_seed(0)
    yield from trained(model, steps, lambda: text.batch(dice, BATCH, LETTERS))


def split_batch(steps: int, kind: type[nn.Module] = aclgrad.nn.SyncBatchNorm) -> Iterator[float]:
    """A net with batch norm over all processes, or with `nn.BatchNorm2d` over each alone."""
    torch.manual_seed(0)
    model: nn.Module = Stripes()
    if kind is aclgrad.nn.SyncBatchNorm:
        model = kind.convert_sync_batchnorm(model)
    model, dice = DistributedDataParallel(model), torch.Generator().manual_seed(0)
    each = 2 * BATCH // dist.get_world_size()
    mine = slice(dist.get_rank() * each, (dist.get_rank() + 1) * each)
    for loss in trained(model, steps, lambda: [part[mine] for part in stripes(dice, 2 * BATCH)]):
        mean = torch.tensor(loss)
        dist.all_reduce(mean)
        yield float(mean) / dist.get_world_size()


def trained(model: nn.Module, steps: int, batch: Callable[[], tuple[Tensor, ...] | list[Tensor]]) -> Iterator[float]:
    """The loss of every step of Adam."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model(*batch())
        loss.backward()
        optimiser.step()
        yield float(loss.detach())


class Stripes(nn.Module):
    """Tells in which direction an image is striped."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES),
        )  # fmt: skip

    def forward(self, images: Tensor, directions: Tensor) -> Tensor:
        """The mean loss."""
        return nn.functional.cross_entropy(self.layers(images), directions)


def stripes(dice: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """(images [count, 1, SIDE, SIDE], the directions of their stripes [count])."""
    directions = torch.randint(CLASSES, (count,), generator=dice)
    angle, phase = directions * (torch.pi / CLASSES), torch.rand(count, generator=dice) * 2 * torch.pi
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    noise = torch.randn(count, SIDE, SIDE, generator=dice)
    return ((along * 1.3 + phase[:, None, None]).sin() + noise)[:, None], directions


RUNS = {
    "the vocabulary is split": split_vocabulary,
    "the batch is split, SyncBatchNorm": split_batch,
    "the batch is split, BatchNorm": lambda steps: split_batch(steps, nn.BatchNorm2d),
}


def run(steps: int, file: Path | None) -> None:
    """What every process of a torchrun does; the first one saves the losses, or shows them."""
    from rich.progress import track

    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    losses = {
        name: list(track(losses_of(steps), name, total=steps, disable=not first or file is not None))
        for name, losses_of in RUNS.items()
    }
    if first and file is None:
        show({dist.get_world_size(): losses})
    elif first and file is not None:
        file.write_text(json.dumps(losses))
    dist.destroy_process_group()


def show(found: dict[int, dict[str, list[float]]]) -> None:
    """The first and the last loss of every run, and how far the curve ever was from that of one process."""
    from rich.console import Console
    from rich.table import Table

    table = Table("losses", "processes", "first", "last", "off one's by")
    table.columns[0].no_wrap = True
    for name in RUNS:
        for count, losses in found.items():
            curve = losses[name]
            apart = [abs(mine - alone) for mine, alone in zip(curve, found.get(1, losses)[name], strict=True)]
            shown = f"{max(apart):.1e}" if 1 in found and count > 1 else ""
            table.add_row(name, str(count), f"{curve[0]:.4f}", f"{curve[-1]:.4f}", shown)
    Console().print(table)


def run_all(steps: int) -> dict[int, dict[str, list[float]]]:
    """The losses by number of processes."""
    from rich.progress import track

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in track(PROCESSES, "1, 2 and 4 processes"):
            file = Path(folder) / f"{count}.json"
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
            command += [__file__, f"--steps={steps}", f"--losses={file}"]
            threads = os.environ | {"OMP_NUM_THREADS": "1"}  # which torchrun would set, with a warning
            subprocess.run(command, check=True, env=threads)  # noqa: S603  it is this very file
            found[count] = json.loads(file.read_text())
    return found


def draw(found: dict[int, dict[str, list[float]]], path: Path) -> None:
    """Loss curves, and under them how far they are from those of one process."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    styles = {1: ("#c9cdd4", 5.0), 2: ("#44546a", 2.2), 4: ("#b3261e", 0.9)}
    figure, panels = pyplot.subplots(2, len(RUNS), figsize=(14, 5.5), height_ratios=(3, 1), sharex=True)
    for column, name in enumerate(RUNS):
        upper, lower, alone = panels[0][column], panels[1][column], found[1][name]
        for count, (colour, width) in styles.items():
            curve = found[count][name]
            upper.plot(curve, color=colour, linewidth=width, label=f"{count} process{'es' * (count > 1)}")
            if count > 1:
                apart = [abs(a - b) for a, b in zip(curve, alone, strict=True)]
                lower.plot(apart, ".", color=colour, markersize=3)
        upper.set(title=name, ylabel="loss" if column == 0 else None)
        upper.legend(frameon=False)
        lower.set(xlabel="step", yscale="log", ylim=(1e-8, 1), ylabel="difference" if column == 0 else None)
        for panel in (upper, lower):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.25)
    figure.suptitle("The same seed and the same batches on 1, 2 and 4 processes")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """Run from the command line, or by torchrun."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120, help="training steps of each run")
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="the picture of the loss curves")
    parser.add_argument("--losses", type=Path, help="where a process of torchrun saves its losses")
    options = parser.parse_args()
    if "RANK" in os.environ:
        run(options.steps, options.losses)
        return
    from rich.console import Console

    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the picture needs matplotlib: pip install '.[plot]' where aclgrad was cloned")
    found = run_all(options.steps)
    show(found)
    draw(found, options.out)
    Console().print(f"loss curves: {options.out}")


if __name__ == "__main__":
    main()
