"""The plane's results: a table, the shares lost, a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from aclgrad.core.meta import dtype_name

from ..report import OURS
from ..terminal import seconds
from .measure import Result


class Summary(NamedTuple):
    """Of the ratios of some points."""

    points: int
    below_one: float  # share of the points
    worst: float
    mean: float  # geometric

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Summary:
        """Of one ratio or more."""
        return cls(len(ratios), sum(r < 1 for r in ratios) / len(ratios), min(ratios), geometric_mean(ratios))

    def __str__(self) -> str:
        return f"{self.mean:.2f}× in the geometric mean, {self.below_one:.0%} behind, {self.worst:.2f}× at worst"


def summaries(results: Sequence[Result], wall: bool = False) -> dict[str, Summary]:
    """By dtype."""
    found: dict[str, list[float]] = {}
    for result in results:
        ratio = result.ratio(wall)
        if ratio is not None:
            found.setdefault(dtype_name(result.point.dtype), []).append(ratio)
    return {dtype: Summary.of(ratios) for dtype, ratios in found.items()}


def show(results: Sequence[Result], kind: str, console: Console) -> None:
    """Every point, the worst first; then the summaries."""
    walls = kind != "cpu"
    table = Table("point", "ours", "best peer", "", "ratio", *(["on the wall"] if walls else []), "gate")
    for result in sorted(results, key=lambda result: result.ratio() or 0.0):
        ratio = result.ratio()
        if ratio is None:
            table.add_row(str(result.point), *[""] * (4 + walls), f"[red]{result.gate.text}")
            continue
        peers = {name: time for name, time in result.device.items() if name != OURS}
        peer = min(peers, key=peers.__getitem__)
        wall = [_shown(result.ratio(wall=True))] if walls else []
        times = seconds(result.device[OURS]), seconds(peers[peer])
        table.add_row(str(result.point), *times, peer, _shown(ratio), *wall, "[green]✓")
    console.print(table)
    for dtype, summary in summaries(results).items():
        console.print(f"{dtype}: {summary}", highlight=False)
    for dtype, summary in summaries(results, wall=True).items() if walls else ():
        console.print(f"{dtype} on the wall: {summary}", highlight=False)


def _shown(ratio: float | None) -> str:
    return "" if ratio is None else f"{'[red]' if ratio < 1 else ''}{ratio:.2f}×"


def save(results: Sequence[Result], machine: dict[str, Any], seed: str, path: Path) -> None:
    """As JSON, a line for each point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"machine": machine, "seed": seed}, ensure_ascii=False)[1:-1]
    lines = ",\n".join(json.dumps(result.row(), ensure_ascii=False) for result in results)
    path.write_text(f'{{{head}, "points": [\n{lines}\n]}}\n')
