"""The plane as a picture: a cell for each point, one panel for each dtype; what is lost in another colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.ticker import FuncFormatter, NullFormatter

from aclgrad.core.meta import dtype_name

from ..plot import FAINT, GRID, INK, STYLE
from .measure import Result
from .points import Point
from .show import Summary

COLORS = LinearSegmentedColormap.from_list("plane", ["#8f1d14", "#e5604d", "#f6efe6", "#7fb2d6", "#164a7b"])
NORM = TwoSlopeNorm(0.0, -1.0, 2.0)  # log2 of the ratio: half as fast to four times as fast
PANEL = (6.2, 5.2)  # inches
AXES = {
    "lstm": ("B, sequences", "H, hidden units"), "head": ("N, tokens", "V, classes"), "cell": ("N, rows", "H, units"),
    "pointwise": ("elements", "elements of a row"), "batch_norm": ("elements", "channels"),
}  # fmt: skip


def place(point: Point) -> tuple[int, int]:
    """Where a point lies in its panel."""
    sizes = point.sizes
    if point.family == "lstm":
        return sizes["B"], sizes["H"]
    if point.family in ("head", "cell"):
        return sizes["N"], sizes["V" if point.family == "head" else "H"]
    if not point.shape:
        return sizes["processes"] * sizes["channels"], sizes["channels"]
    return math.prod(point.shape), point.shape[-1 if point.family == "pointwise" else 1]


def draw(results: Sequence[Result], title: str, path: Path, wall: bool = False) -> None:
    """Write the picture of one family."""
    dtypes = list(dict.fromkeys(result.point.dtype for result in results))
    with plt.rc_context(STYLE):
        size = PANEL[0] * len(dtypes), PANEL[1]
        figure, panels = plt.subplots(1, len(dtypes), figsize=size, squeeze=False, layout="constrained")
        for axes, dtype in zip(panels[0], dtypes, strict=True):
            _panel(axes, [result for result in results if result.point.dtype == dtype], wall)
        bar = figure.colorbar(plt.cm.ScalarMappable(NORM, COLORS), ax=panels[0].tolist(), shrink=0.8)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{2**value:.2g}×"))
        figure.suptitle(title.replace(" · torch", "\ntorch"), x=0.01, ha="left", fontsize=8, color=FAINT)
        figure.savefig(path, dpi=110, facecolor="white")
        plt.close(figure)


def _panel(axes: Axes, results: Sequence[Result], wall: bool) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    family = results[0].point.family
    ratios = [(result, ratio) for result in results if (ratio := result.ratio(wall)) is not None]
    for result, ratio in sorted(ratios, key=lambda pair: -pair[1]):  # the lost ones on top
        color = COLORS(NORM(max(-1.0, min(2.0, math.log2(ratio)))))
        x, y = place(result.point)
        axes.plot(x, y, "s", color=color, markersize=17, markeredgecolor=INK if ratio < 1 else GRID, zorder=3)
        shade = sum(color[:3]) / 3
        axes.text(
            x, y, f"{ratio:.2g}" if ratio < 9.95 else f"{ratio:.0f}", ha="center", va="center", fontsize=6.5, zorder=4,
            color="white" if shade < 0.55 else INK, weight="bold" if ratio < 1 else "normal",
        )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _size(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.margins(0.08)
    axes.grid(color=GRID, zorder=0)
    axes.set_xlabel(AXES[family][0])
    axes.set_ylabel(AXES[family][1])
    summary = Summary.of([ratio for _, ratio in ratios]) if ratios else ""
    axes.set_title(f"{family}, {dtype_name(results[0].point.dtype)}", loc="left", weight="bold", fontsize=11, pad=18)
    axes.text(0.0, 1.0, str(summary), transform=axes.transAxes, va="bottom", fontsize=8.5, color=FAINT)


def _size(value: float) -> str:
    """A size in a few characters: 2048, 33k, 2M."""
    if value < 1e4:
        return f"{value:g}"
    return f"{value / 1e3:.0f}k" if value < 1e6 else f"{value / 1e6:.0f}M"
