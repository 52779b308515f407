"""The newest reports of all kinds of devices in one picture: a dot for each row, an operator on each line."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from .plot import COLORS, FAINT, GRID, HALO, INK, STYLE, main_regime
from .report import Report, Row

PANEL_WIDTH, LINE, AROUND = 5.6, 0.27, 1.7  # inches: of a device, of an operator, of what is above and below
SPREAD = 0.22  # of a line, between the dots of two dtypes
NAMES = {"cpu": "{name}, {threads} threads", "cuda": "{name}"}


def draw(reports: Sequence[Report], path: Path) -> None:
    """Write the picture: a panel for each report, the operators of all on common lines."""
    operators = list(dict.fromkeys(row.operator for report in reports for row in _rows(report)))
    with plt.rc_context(STYLE):
        size = PANEL_WIDTH * len(reports) + 2.4, LINE * len(operators) + AROUND
        figure, panels = plt.subplots(1, len(reports), figsize=size, sharey=True, squeeze=False, layout="constrained")
        for axes, report in zip(panels[0], reports, strict=True):
            _panel(axes, report, operators)
        panels[0][0].set_yticks(range(len(operators)), operators)
        panels[0][0].set_ylim(len(operators) - 0.4, -0.6)
        dtypes = {row.dtype: None for report in reports for row in _rows(report)}
        dots = [Line2D([], [], marker="o", linestyle="", color=COLORS[dtype], label=dtype) for dtype in dtypes]
        figure.legend(handles=dots, loc="outside lower center", ncols=len(dots), frameon=False)
        figure.savefig(path, dpi=110, facecolor="white")
        plt.close(figure)


def _panel(axes: Axes, report: Report, operators: Sequence[str]) -> None:
    """One device: a dot for each row, the geometric mean of an operator's rows in figures, the peer's name."""
    axes.set_xscale("log", base=2)
    rows = _rows(report)
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    for y, operator in enumerate(operators):
        members = [row for row in rows if row.operator == operator]
        if not members:
            continue
        speedups = [_speedup(row) for row in members]
        axes.plot([min(speedups), max(speedups)], [y, y], color=GRID, linewidth=5, zorder=1, solid_capstyle="round")
        for row, speedup in zip(members, speedups, strict=True):
            shift = SPREAD * (dtypes.index(row.dtype) - (len(dtypes) - 1) / 2)
            axes.plot(speedup, y + shift, "o", color=COLORS[row.dtype], markersize=3.6, zorder=3)
        mean = exp(sum(map(log, speedups)) / len(speedups))
        label = f"{mean:.1f}×" if mean >= 1.95 else f"{mean:.2f}×"
        beside: dict[str, Any] = {"va": "center", "fontsize": 8.5, "path_effects": [HALO], "zorder": 4}
        axes.annotate(label, (max(speedups), y), (7, 0), textcoords="offset points", weight="bold", **beside)
        axes.text(
            0.995,
            y,
            main_regime(members[0]).peer or "",
            ha="right",
            color=FAINT,
            transform=axes.get_yaxis_transform(),
            **beside,
        )
    axes.axvline(1, color=INK, linewidth=1, zorder=2)
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 0.6), right * 6)  # the figures and the peers' names stand on the right
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, zorder=0)
    name = NAMES[report.machine["kind"]].format(**report.machine)
    axes.set_title(f"{name}: times faster than the peer", loc="left", weight="bold", fontsize=11)
    axes.set_xlabel("peer's time / ours; a dot is a case, figures are geometric means")


def _rows(report: Report) -> list[Row]:
    return [row for row in report.rows if row.main and row.main.speedup]


def _speedup(row: Row) -> float:
    return main_regime(row).speedup or 1.0
