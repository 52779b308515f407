"""The report as a picture: who is faster by how much on every row, and time against size."""

from __future__ import annotations

from itertools import chain, combinations, groupby, pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from .machine import title
from .report import Regime, Report, Row, Sweep
from .terminal import seconds

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLORS = {"float32": "#1d6fa5", "float16": "#e08e0b", "bfloat16": "#3a9d6e", "float64": "#7d5ba6"}
MISSED = "#c81e1e"
HALO = withStroke(linewidth=2.5, foreground="white")  # keeps words readable where lines pass
MOST = 24.0  # where the axis ends; a longer bar is cut and says how long it is
LINE, HEADING, GAP = 0.19, 1.4, 0.25  # inches of a row; rows that a heading and the end of a case take
ROWS_OF_A_COLUMN, COLUMN_WIDTH, SWEEP_HEIGHT = 80, 8.5, 4.2  # the latter two in inches
OURS, PEER, BEST = "#1d6fa5", "#9aa5b1", INK
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.edgecolor": GRID, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def draw(report: Report, path: Path) -> None:
    """Write the picture."""
    rows = [row for row in report.rows if row.main and row.main.speedup]
    columns = _columns(rows)
    lines, reach = max(map(_lines, columns)), _reach(rows, report)
    tallest = LINE * lines + 1.6
    below = SWEEP_HEIGHT if report.sweeps else 0.0
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(COLUMN_WIDTH * len(columns), tallest + below), layout="constrained")
        halves = figure.add_gridspec(2 if below else 1, 1, height_ratios=(tallest, below) if below else (1,))
        pairs = halves[0].subgridspec(1, 2 * len(columns), width_ratios=(1.55, 0.6) * len(columns))
        for k, column in enumerate(columns):
            speedups = figure.add_subplot(pairs[2 * k])
            places = _speedups(speedups, column, report)
            speedups.set_xlim(*reach)
            _shares(figure.add_subplot(pairs[2 * k + 1], sharey=speedups), column, places, report)
            speedups.set_ylim(lines, 0)
        if below:
            panels = halves[1].subgridspec(1, len(report.sweeps))
            for k, sweep in enumerate(report.sweeps):
                _against_size(figure.add_subplot(panels[k]), sweep)
        figure.legend(handles=_legend(rows), loc="outside lower center", ncols=6, frameon=False)
        figure.suptitle(title(report.machine), x=0.01, ha="left", fontsize=9, color=FAINT)
        figure.savefig(path, dpi=120, facecolor="white")
        plt.close(figure)


def _columns(rows: list[Row]) -> list[list[Row]]:
    """The rows beside each other in columns, the tallest as low as can be; an operator's stay together."""
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.operator)]
    count = min(len(groups), 1 + len(rows) // ROWS_OF_A_COLUMN) or 1
    cuts = combinations(range(1, len(groups)), count - 1)
    ways = [[list(chain(*groups[i:j])) for i, j in pairwise((0, *cut, len(groups)))] for cut in cuts]
    return min(ways, key=lambda columns: max(map(_lines, columns)))


def _lines(rows: list[Row]) -> float:
    """How many lines `_speedups` takes for them."""
    cases = len({(row.operator, row.case) for row in rows})
    return len(rows) + GAP * cases + HEADING * len({row.operator for row in rows})


def _reach(rows: list[Row], report: Report) -> tuple[float, float]:
    """Where the axis of the speed-ups begins and ends."""
    values = [main_regime(row).speedup or 1 for row in rows] + [
        limit for row in rows for limit, _ in _limits(row, report)
    ]
    return min([0.45, *(v / 1.7 for v in values)]), min(MOST, max([2.5, *(v * 1.6 for v in values)]))


def _speedups(axes: Axes, rows: list[Row], report: Report) -> list[float]:
    """Horizontal bars from 1 (as fast as the peer) on a logarithmic axis; a tick where the row's bar stands.

    Returns the rows' places.
    """
    axes.set_xscale("log", base=2)
    y, names, places = 0.0, {}, []
    for operator, group in groupby(rows, key=lambda row: row.operator):
        members = list(group)
        y += HEADING
        heading: dict[str, Any] = {
            "va": "center",
            "transform": axes.get_yaxis_transform(),
            "zorder": 6,
            "backgroundcolor": "white",
        }
        axes.text(0.005, y - 1.05, operator, weight="bold", **heading)
        axes.text(0.995, y - 1.05, f"against {main_regime(members[0]).peer}", ha="right", color=FAINT, **heading)
        for case, dtypes in groupby(members, key=lambda row: row.case):
            first = y
            for row in dtypes:
                _one(axes, y, row, report)
                places.append(y)
                y += 1
            names[(first + y - 1) / 2] = case
            y += GAP
    axes.axvline(1, color=INK, linewidth=1, zorder=3)
    axes.set_yticks(list(names), list(names.values()))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color=GRID, zorder=0)
    axes.set_title("How many times faster than the peer", loc="left", weight="bold", fontsize=12)
    axes.set_xlabel("peer's median time / ours, logarithmic      slower ←  1×  → faster")
    return places


def _shares(axes: Axes, rows: list[Row], places: list[float], report: Report) -> None:
    """How near each row is to what the machine can do."""
    for row, y in zip(rows, places, strict=True):
        share = main_regime(row).share_of_bound or 0.0
        axes.barh(y, share, height=0.78, color=COLORS[row.dtype], zorder=2)
        missed = False
        for judged in report.bars_of(row.key):
            if judged.quantity == "share_of_bound":
                axes.plot([judged.limit] * 2, [y - 0.46, y + 0.46], color=INK, linewidth=2.2, solid_capstyle="butt")
                missed |= judged.met is False
        color, weight = (MISSED, "bold") if missed else (INK, "normal")
        label: dict[str, Any] = {"va": "center", "fontsize": 8, "color": color, "weight": weight}
        axes.text(share + 0.02, y, f"{share:.2f}", path_effects=[HALO], zorder=6, **label)
    axes.axvline(1, color=INK, linewidth=1, zorder=3)
    axes.set_xlim(0, max([1.3, *((main_regime(row).share_of_bound or 0) * 1.25 for row in rows)]))
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.grid(axis="x", color=GRID, zorder=0)
    axes.set_title("Share of the bound", loc="left", weight="bold", fontsize=12)
    axes.set_xlabel("bound / ours")


def _legend(rows: list[Row]) -> list[Artist]:
    seen = {row.dtype for row in rows}
    handles: list[Artist] = [Patch(color=COLORS[dtype], label=dtype) for dtype in COLORS if dtype in seen]
    handles.append(
        Line2D([], [], color=INK, marker="|", markersize=11, markeredgewidth=2, linestyle="", label="target")
    )
    cold: dict[str, Any] = {"marker": "o", "color": "white", "markeredgecolor": INK, "markersize": 5, "linestyle": ""}
    handles.append(Line2D([], [], label="inputs from memory", **cold))
    handles.append(Patch(color="none", label="red: target missed"))
    return handles


def main_regime(row: Row) -> Regime:
    """The regime of a row that has one."""
    assert row.main is not None
    return row.main


def _limits(row: Row, report: Report) -> list[tuple[float, bool | None]]:
    """(speed-up asked for, met) of the row's bars that are about speed."""
    of = {"speedup": lambda limit: limit, "ratio": lambda limit: 1 / limit}
    return [(of[j.quantity](j.limit), j.met) for j in report.bars_of(row.key) if j.quantity in of]


def _one(axes: Axes, y: float, row: Row, report: Report) -> None:
    speedup = main_regime(row).speedup or 1.0
    axes.barh(y, speedup - 1, left=1, height=0.78, color=COLORS[row.dtype], zorder=2)
    ends, missed = [speedup], False
    if row.cold and row.cold.speedup:
        axes.plot(row.cold.speedup, y, "o", color="white", markeredgecolor=INK, markersize=5, zorder=5)
        ends.append(row.cold.speedup)
    for limit, met in _limits(row, report):
        axes.plot([limit] * 2, [y - 0.46, y + 0.46], color=INK, linewidth=2.2, zorder=4, solid_capstyle="butt")
        missed |= met is False
        if (limit > 1) == (speedup >= 1):
            ends.append(limit)
    faster = speedup >= 1
    label = f"{speedup:.2f}×" if speedup < 10 else f"{speedup:.0f}×"
    if speedup > MOST / 1.3:
        label += " ▸" if speedup > MOST else ""
        end = min(speedup, MOST) / 1.04
        axes.text(end, y, label, va="center", ha="right", fontsize=8, color="white", weight="bold", zorder=6)
        return
    axes.annotate(label, (max(ends) if faster else min(ends), y), (5 if faster else -5, 0), textcoords="offset points",
                  va="center", ha="left" if faster else "right", fontsize=8, zorder=6, path_effects=[HALO],
                  color=MISSED if missed else INK, weight="bold" if missed else "normal")  # fmt: skip


def _against_size(axes: Axes, sweep: Sweep) -> None:
    """Ours, the peer and the copy's rate on doubly logarithmic axes."""
    sizes = [point.elements for point in sweep.points]
    for name, values, color, line in (
        (sweep.peer_name, [p.peer for p in sweep.points], PEER, "-o"),
        ("a copy of as many bytes", [p.bound for p in sweep.points], BEST, ":"),
        ("aclgrad", [p.ours for p in sweep.points], OURS, "-o"),
    ):
        axes.plot(sizes, values, line, color=color, label=name, linewidth=2, markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color=GRID)
    axes.set_title(sweep.operator, loc="left", weight="bold", fontsize=11)
    axes.set_xlabel(f"elements, {sweep.dtype}, inputs from memory")
    axes.legend(frameon=False)
