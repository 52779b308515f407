"""Train the same models with torch's modules and with aclgrad's, from the same seed, and compare.

    python examples/training/train.py --steps 200 --out curves.png

Prints a table of loss, time and memory; draws the loss curves side by side. `--zoo` trains four models that people
know: an AWD-LSTM with weight drop, a speech recogniser, an agent with a memory, a causal transformer.
"""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from pathlib import Path

from curves import Task, compare, draw, table  # before torch, which its first line is about
from models import CharacterLSTM, Transformer, converted
from rich.console import Console
from text import Text
from torch import nn
from zoo import zoo

MODELS: dict[str, type[nn.Module]] = {"character LSTM": CharacterLSTM, "character transformer": Transformer}
BATCH, STEPS = 8, 48


def tasks(seed: int) -> list[Task]:
    """The two character models, and the text of a seed."""
    text = Text(seed)
    return [
        Task(name, partial(kind, len(text.alphabet)), converted, partial(text.batch, size=BATCH, steps=STEPS))
        for name, kind in MODELS.items()
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", action="store_true", help="the four models that people know")
    parser.add_argument("--steps", type=int, default=200, help="training steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("curves.png"), help="the picture of the loss curves")
    options = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the picture needs matplotlib: pip install '.[plot]' where aclgrad was cloned")
    console = Console()
    runs = compare((zoo if options.zoo else tasks)(options.seed), options.steps, options.seed, console)
    console.print(table(runs))
    draw(runs, options.out)
    console.print(f"loss curves: {options.out}")


if __name__ == "__main__":
    main()
