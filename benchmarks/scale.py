"""`python -m benchmarks.scale`: how collectives grow with the number of ranks, by a small model and as measured.

A collective of W ranks takes `steps · latency + bytes / bandwidth`, where the bytes are those that a rank sends. The
model is fitted to two processes on this machine and compared with three and four; with the figures of GPUs and of their
networks it says what a step costs on 8 to 1,024 of them. `--page` draws it and puts its tables into docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from aclgrad.testing.processes import Processes

from . import machine
from .terminal import seconds

RESULT = Path(__file__).parent / "results" / "scale.json"
PAGE = machine.ROOT / "docs" / "scale.md"
WORLDS = (2, 3, 4)
SIZES = tuple(1 << power for power in (8, 12, 16, 18, 20))
"""Elements in float32."""


class Network(NamedTuple):
    """A link of every rank to the others: seconds of a step, bytes a second in each direction."""

    name: str
    latency: float
    bandwidth: float


class Collective(NamedTuple):
    """What a rank sends of a part of one byte, and in how many steps."""

    steps: float
    share: float

    def seconds(self, size: int, network: Network) -> float:
        """Of a part of `size` bytes."""
        return self.steps * network.latency + self.share * size / network.bandwidth


def gather(ranks: int, ring: bool = False) -> Collective:
    """Every part to every rank: on a ring one after the other, or doubled in every step."""
    return Collective(ranks - 1 if ring else math.ceil(math.log2(ranks)), ranks - 1)


def total(ranks: int, ring: bool = False) -> Collective:
    """The sum of all parts on every rank: scattered, then gathered."""
    return Collective(2 * gather(ranks, ring).steps, 2 * (ranks - 1) / ranks)


KINDS = {"all-gather": gather, "all-reduce": total}

NVLINK = Network("NVLink 4", 2e-6, 450e9)
INFINIBAND = Network("InfiniBand NDR", 5e-6, 50e9)
NODE = 8
"""GPUs that NVLink connects."""

RATE = 0.93 * 784e12
"""Operations a second of an H200 in products of the head, as measured (nvidia-h200.md) and as its bar has it."""

COPY = 4.3e12
"""Bytes a second of its memory, likewise."""

GPU_RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)


class Head(NamedTuple):
    """A step of the head over so many ranks."""

    tokens: int = 8192
    features: int = 4096
    classes: int = 128256
    statistics: int = 3

    def products(self, ranks: int) -> float:
        """Seconds of a rank's four products."""
        return 8 * self.tokens * self.features * self.classes / ranks / RATE

    def sent(self, ranks: int) -> tuple[float, float]:
        """Bytes that a rank sends forward and backward."""
        return gather(ranks).share * self._forward, total(ranks).share * self._backward

    def seconds(self, ranks: int, network: Network) -> tuple[float, float]:
        """Of both collectives."""
        return gather(ranks).seconds(self._forward, network), total(ranks).seconds(self._backward, network)

    @property
    def _forward(self) -> int:
        return 4 * (self.statistics * self.tokens + 1)

    @property
    def _backward(self) -> int:
        return 4 * self.tokens * self.features


class Norm(NamedTuple):
    """A step of one batch norm over so many ranks; the batch is that of a rank."""

    batch: tuple[int, int, int] = (32, 256, 3136)
    gathered: int = 1 << 20

    def passes(self) -> float:
        """Seconds that a rank reads and writes its batch: statistics, result, sums, gradient; in half precision."""
        return 8 * 2 * math.prod(self.batch) / COPY

    def seconds(self, ranks: int, network: Network) -> tuple[float, float]:
        """Of both collectives."""
        forward, backward = 4 * (2 * self.batch[1] + 2), 4 * 2 * self.batch[1]
        kind = gather if backward * ranks <= self.gathered else total
        return gather(ranks).seconds(forward, network), kind(ranks).seconds(backward, network)


def network_of(ranks: int) -> Network:
    """The slower one that they need."""
    return NVLINK if ranks <= NODE else INFINIBAND


def measured() -> list[dict[str, Any]]:
    """Seconds of collectives of all sizes and worlds."""
    with Processes(max(WORLDS)) as processes:
        found = []
        for kind in KINDS:
            for ranks in track(WORLDS, kind):
                times = processes(timed, kind, ranks, SIZES)[0]
                found += [
                    {"kind": kind, "ranks": ranks, "bytes": 4 * size, "seconds": each}
                    for size, each in zip(SIZES, times, strict=True)
                ]
        return found


def timed(rank: int, groups: dict[int, Any], kind: str, ranks: int, sizes: Sequence[int]) -> list[float]:
    """Of one rank: the best of each size, after a barrier. Whatever else runs on the machine only adds to it."""
    import torch
    import torch.distributed as dist

    from aclgrad.core.collectives import Group

    if rank >= ranks:
        return []
    collective, found = Group(groups[ranks]), []
    for size in sizes:
        part, samples = torch.ones(size), []
        for _ in range(40):
            dist.barrier(group=groups[ranks])
            begin = time.perf_counter()
            if kind == "all-gather":
                collective.gather("a part", [part])
            else:
                collective.start_sum("a part", [part])()
            samples.append(time.perf_counter() - begin)
        found.append(min(samples))
    return found


def fitted(rows: Sequence[dict[str, Any]], kind: str) -> Network:
    """Latency and bandwidth that suit two processes best, by their logarithms; each kind copies in its own way."""
    pairs = [row for row in rows if (row["kind"], row["ranks"]) == (kind, 2)]
    candidates = [(1e-5 * 1.1**k, 1e8 * 1.1**j) for k in range(60) for j in range(60)]

    def error(candidate: tuple[float, float]) -> float:
        network = Network("", *candidate)
        model = (KINDS[kind](2, ring=True).seconds(row["bytes"], network) for row in pairs)
        return sum(math.log(m / row["seconds"]) ** 2 for m, row in zip(model, pairs, strict=True))

    return Network(f"gloo's {kind} on one machine", *min(candidates, key=error))


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Model against measurement, then both models of GPUs, in Markdown."""
    networks, head, norm = {kind: fitted(rows, kind) for kind in KINDS}, Head(), Norm()
    fits = (
        f"{kind} {seconds(network.latency)} a step and {network.bandwidth / 1e9:.2g} GB/s"
        for kind, network in networks.items()
    )
    lines = [
        f"Fitted to two processes: {', '.join(fits)}.", "",
        "| collective | of a part of | 2 processes: measured | model | 3: measured | model | 4: measured | model |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for kind, of in KINDS.items():
        for size in SIZES:
            same = [row for row in rows if (row["kind"], row["bytes"]) == (kind, 4 * size)]
            cells = [
                f"{seconds(row['seconds'])} | {seconds(of(row['ranks'], ring=True).seconds(4 * size, networks[kind]))}"
                for row in same
            ]
            lines.append(f"| {kind} | {size // 256} KiB | {' | '.join(cells)} |")
    lines += [
        "", "| ranks | network | head: products | statistics | sent | gradient | sent | batch norm: passes | forward | "
        "backward |", "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for ranks in GPU_RANKS:
        link = network_of(ranks)
        forward, backward = head.seconds(ranks, link)
        sent = [f"{size / 2**20:.3g} MiB" for size in head.sent(ranks)]
        of_norm = [seconds(each) for each in (norm.passes(), *norm.seconds(ranks, link))]
        lines.append(
            f"| {ranks:,} | {link.name} | {seconds(head.products(ranks))} | {seconds(forward)} | {sent[0]} | "
            f"{seconds(backward)} | {sent[1]} | {' | '.join(of_norm)} |"
        )
    return "\n".join(lines)


BEGIN, END = "<!-- scale: start -->\n", "<!-- scale: end -->"


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Put the tables between the page's markers, and draw both models beside it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{tables(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    draw(PAGE.with_suffix(".png"))


def draw(path: Path) -> None:
    """Seconds of a step against the number of ranks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.2), sharex=True, layout="constrained")
    head, norm = Head(), Norm()
    curves: list[tuple[str, dict[str, list[float]]]] = [
        (
            f"the head: {head.tokens:,} tokens, {head.features:,} features, {head.classes:,} classes",
            {
                "products of a rank": [head.products(ranks) for ranks in GPU_RANKS],
                "gather of statistics": [head.seconds(ranks, network_of(ranks))[0] for ranks in GPU_RANKS],
                "sum of the input's gradient": [head.seconds(ranks, network_of(ranks))[1] for ranks in GPU_RANKS],
            },
        ),
        (
            f"one batch norm: {'×'.join(map(str, norm.batch))} values of a rank",
            {
                "passes of a rank": [norm.passes() for _ in GPU_RANKS],
                "gather of statistics": [norm.seconds(ranks, network_of(ranks))[0] for ranks in GPU_RANKS],
                "sums of the gradient": [norm.seconds(ranks, network_of(ranks))[1] for ranks in GPU_RANKS],
            },
        ),
    ]
    for panel, (title, lines) in zip(panels, curves, strict=True):
        for (name, values), colour in zip(lines.items(), ("#9aa5b1", "#1d6fa5", "#b3261e"), strict=True):
            panel.plot(GPU_RANKS, [1e3 * value for value in values], "o-", color=colour, markersize=4, label=name)
        panel.axvline(NODE * math.sqrt(2), color="#e4e7eb", zorder=0)
        panel.set(xscale="log", yscale="log", xlabel="ranks", ylabel="milliseconds of a step")
        panel.set_title(title, fontsize="medium")
        panel.set_xticks(GPU_RANKS, [f"{ranks:,}" for ranks in GPU_RANKS])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    figure.suptitle(f"By the model: up to {NODE} ranks over {NVLINK.name}, beyond over {INFINIBAND.name}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Measure, save, show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--page", action="store_true", help="measure nothing; write docs/scale.md anew")
    options = parser.parse_args()
    if not options.page:
        rows = [{**row, "seconds": float(f"{row['seconds']:.3g}")} for row in measured()]
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    rows = json.loads(RESULT.read_text())
    show(rows)
    Console().print(f"{PAGE.name} shows {len(rows)} measurements")


if __name__ == "__main__":
    main()
