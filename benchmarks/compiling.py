"""`python -m benchmarks.compiling`: what `torch.compile` costs a model with LSTMs, and what it gives, on a CPU.

A language model is trained with torch's modules and with ours. Every variant has a process of its own with one thread
and empty caches of the compiler. Kernels of ours are on the disk already, as after a first run of a program. Measured
is CPU time, that of the C++ compiler included, which other programs disturb less than the clock. `--page` measures
nothing and writes the tables of docs/performance.md anew.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

import aclgrad.nn

from . import machine
from .terminal import seconds

RESULT = Path(__file__).parent / "results" / "compiling.json"
PAGE = machine.ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- compiling: start -->\n", "<!-- compiling: end -->"

LAYERS = (1, 6)
VARIANTS = {
    "torch.nn": "`torch.nn`, which breaks the graph at the LSTM",
    "allow_rnn": "`torch.nn` with `allow_rnn`, which writes out every step",
    "aclgrad.nn": "`aclgrad.nn`",
}
FIRST, OTHERS = (8, 8), ((5, 8), (8, 12), (12, 5))
"""(batch, steps) that a model is compiled for, and those that come later."""

SAMPLES = 21
FEATURES, UNITS, WORDS = 64, 128, 1000


class Model(nn.Module):
    """An embedding, LSTMs and a linear layer over the words; the loss is cross entropy."""

    def __init__(self, kind: type[nn.Module], layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.lstm = nn.Embedding(WORDS, FEATURES), kind(FEATURES, UNITS, layers)
        self.out = nn.Linear(UNITS, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """[T, N] words; the loss of the next ones."""
        hidden, _ = self.lstm(self.embed(tokens[:-1]))
        logits = self.out(hidden)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten())


def spent() -> float:
    """CPU seconds of this process and of those that it has started."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in found)


def tokens(batch: int, steps: int) -> Tensor:
    """The same words for every variant."""
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(WORDS, (steps + 1, batch), generator=generator)


def step(run: Callable[[Tensor], Tensor], model: nn.Module, words: Tensor) -> list[Tensor]:
    """Forward and backward: the loss and every gradient."""
    loss = run(words)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def measured(variant: str, layers: int) -> dict[str, Any]:
    """In this process. The compiled model has to agree with the eager one for every size."""
    torch.set_num_threads(1)
    if variant == "allow_rnn":
        torch._dynamo.config.allow_rnn = True
    torch._dynamo.config.recompile_limit = 64
    model = Model(aclgrad.nn.LSTM if variant == "aclgrad.nn" else nn.LSTM, layers)
    words = tokens(*FIRST)
    step(model, model, words)
    begin = spent()
    compiled = torch.compile(model, dynamic=True)
    found = step(compiled, model, words)
    compilation = spent() - begin
    torch.testing.assert_close(found, step(model, model, words))
    samples: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(SAMPLES):
        for name, run in (("eager", model), ("compiled", compiled)):
            start = time.thread_time()
            step(run, model, words)
            samples[name].append(time.thread_time() - start)
    graphs, begin = _graphs(), spent()
    for sizes in OTHERS:
        torch.testing.assert_close(step(compiled, model, tokens(*sizes)), step(model, model, tokens(*sizes)))
    return {
        "variant": variant, "layers": layers, "compilation": compilation, "graphs": graphs,
        **{name: statistics.median(times) for name, times in samples.items()},
        "more_graphs": _graphs() - graphs, "other_sizes": spent() - begin,
    }  # fmt: skip


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def in_a_new_process(variant: str, layers: int) -> dict[str, Any]:
    """One variant, with caches that nobody has filled."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", __spec__.name, "--one", variant, str(layers)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        "| | LSTM layers | compilation | a step, eager | compiled | graphs | more for other sizes | which take |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        times = [seconds(row[name]) for name in ("compilation", "eager", "compiled")]
        counts = f"{row['graphs']} | {row['more_graphs']} | {seconds(row['other_sizes'])}"
        lines.append(f"| {VARIANTS[row['variant']]} | {row['layers']} | {' | '.join(times)} | {counts} |")
    return "\n".join(lines)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Put the table between the page's markers."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Measure, save, show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("--page", action="store_true", help="measure nothing; write docs/performance.md anew")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "LAYERS"), help="measure one in this process, as JSON")
    options = parser.parse_args()
    console = Console()
    if options.one:
        variant, layers = options.one
        sys.stdout.write(json.dumps(measured(variant, int(layers))) + "\n")
        return
    if not options.page:
        each = [(variant, layers) for layers in LAYERS for variant in VARIANTS]
        rows = [in_a_new_process(*one) for one in track(each, "compiling", console=console, transient=True)]
        rows = [{k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    rows = json.loads(RESULT.read_text())
    show(rows)
    console.print(f"{PAGE.name} shows {len(rows)} measurements")


if __name__ == "__main__":
    main()
