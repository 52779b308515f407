"""Pictures of a tensor's errors, as SVG that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, inf, log2, log10

from ..precision.places import Places
from ..precision.watchers import EXACT, LOW, ZERO, Histogram

WIDTH = 440  # of every picture, in its own units
SHADES = 8
FAINTEST = 2.0**-4  # of what is allowed: smaller errors are not drawn in maps


def histogram(counts: Histogram, total: int) -> str:
    """How many elements have errors of how many ulp; the counts on a logarithmic scale."""
    bars = counts.by_error()
    left, top, height = 40, 8, 150
    step = (WIDTH - left) / max(len(bars), 8)
    every = max(1, -(-len(bars) // 14))  # of the bars have a label
    most = max(count for _, count in bars) if bars else 1
    decades = ceil(log10(max(most, 10)))
    scale = height / (decades + 0.3)

    def y(count: float) -> float:
        return top + height - (log10(count) + 0.3) * scale

    parts = [
        f'<path class="axis" d="M{left} {y(10.0**k):.1f}H{WIDTH}"/>'
        f'<text x="{left - 5}" y="{y(10.0**k) + 4:.1f}" text-anchor="end">{_power(k)}</text>'
        for k in range(decades + 1)
    ]
    for k, (exponent, count) in enumerate(bars):
        x = left + k * step
        if count:
            told = f"{count:,} elements: {_ulp_range(exponent)}"
            parts.append(
                f'<rect class="within" x="{x + 1:.1f}" y="{y(count):.1f}" width="{step - 2:.1f}" '
                f'height="{top + height - y(count):.1f}" rx="2"><title>{told}</title></rect>'
            )
        if k % every == 0:
            parts.append(_label(x + step / 2, top + height + 14, _ulp_label(exponent)))
    parts.append(_label((left + WIDTH) / 2, top + height + 30, "error in ulp of the true value; up: elements"))
    return _drawing(top + height + 36, f"errors of {total:,} elements by their size in ulp", parts)


def by_size(counts: Histogram) -> str:
    """Errors in ulp against the size of the true values: the darker, the more elements."""
    rows = counts.by_size()
    if not rows:
        return ""
    errors = [exponent for exponent, _ in counts.by_error()]
    sizes = [exponent for exponent, _ in rows if exponent != ZERO] or [0]
    first, last = sizes[0], sizes[-1]
    group = max(1, -(-(last - first + 1) // 44))  # exponents of sizes in one column
    apart = 2 if rows[0][0] == ZERO else 0  # columns: one of zeros, and a gap
    columns = (last - first) // group + 1 + apart
    left, top, side = 40, 8, 150 / max(len(errors), 6)
    step = (WIDTH - left) / max(columns, 8)
    cells: dict[tuple[int, int], int] = {}
    for exponent, row in rows:
        for k, count in enumerate(row):
            at = 0 if exponent == ZERO else (exponent - first) // group + apart, k
            cells[at] = cells.get(at, 0) + count
    most = log2(1 + max(cells.values()))
    bottom = top + side * max(len(errors), 6)
    parts = [f'<rect class="back" x="{left}" y="{top}" width="{WIDTH - left}" height="{bottom - top:.1f}"/>']
    for (column, k), count in cells.items():
        if count:
            size = f"2^{first + (column - apart) * group} and more" if column >= apart else "0"
            told = f"{count:,} elements of size {size}, off by {_ulp_range(errors[k])}"
            shade = 0.15 + 0.85 * log2(1 + count) / most
            parts.append(
                f'<rect class="within" x="{left + column * step:.1f}" y="{bottom - (k + 1) * side:.1f}" '
                f'width="{step + 0.3:.1f}" height="{side + 0.3:.1f}" fill-opacity="{shade:.2f}">'
                f"<title>{told}</title></rect>"
            )
    every = max(1, len(errors) // 8)
    parts += [
        f'<text x="{left - 5}" y="{bottom - (k + 0.5) * side + 4:.1f}" text-anchor="end">{_ulp_label(exponent)}</text>'
        for k, exponent in enumerate(errors) if k % every == 0
    ]  # fmt: skip
    marks = max(1, columns // 7)
    parts += [
        _label(left + (column + 0.5) * step, bottom + 14, _two(first + (column - apart) * group))
        for column in range(apart, columns, marks)
    ]
    if apart:
        parts.append(_label(left + 0.5 * step, bottom + 14, "0"))
    parts.append(_label((left + WIDTH) / 2, bottom + 30, "size of the true value; up: error in ulp"))
    return _drawing(bottom + 36, "errors in ulp against the size of the true value", parts)


def places(found: Places, allowed: float) -> str:
    """A map of the largest errors: leading dimensions down, the last one across."""
    rows, columns = found.map.shape
    if rows < 2 or columns < 2:
        return ""
    left, top = 40, 6
    cell = (WIDTH - left) / columns
    side = max(4.0, min(cell, 260 / rows))
    bottom = top + side * rows
    parts = [f'<rect class="back" x="{left}" y="{top}" width="{WIDTH - left}" height="{bottom - top:.1f}"/>']
    parts += _cells(found.map.tolist(), allowed, left, top, cell, side)
    heads = [(0, "0"), (rows - 1, str(found.rows - 1))]
    parts += [
        f'<text x="{left - 5}" y="{top + (k + 0.5) * side + 4:.1f}" text-anchor="end">{text}</text>'
        for k, text in heads
    ]
    lead = "×".join(map(str, found.shape[:-1]))
    parts += [
        f'<text x="{left}" y="{bottom + 14:.1f}">0</text>',
        f'<text x="{WIDTH}" y="{bottom + 14:.1f}" text-anchor="end">{found.last - 1}</text>',
        _label((left + WIDTH) / 2, bottom + 14, f"last dimension ({found.last}); down: {lead} rows"),
    ]
    return _drawing(bottom + 20, "largest error in each part of the tensor", parts)


def strips(found: Places, allowed: float) -> str:
    """A line for each dimension: the largest error at each index."""
    lines = [(d, found.strip(d).tolist()) for d in range(len(found.shape)) if found.shape[d] > 1]
    if not lines:
        return ""
    left, side, gap, parts = 92, 16, 10, []
    for k, (d, line) in enumerate(lines):
        top = k * (side + gap) + 4
        cell = (WIDTH - left) / len(line)
        parts.append(f'<text x="{left - 6}" y="{top + 12}" text-anchor="end">dim {d} ({found.shape[d]})</text>')
        parts.append(f'<rect class="back" x="{left}" y="{top}" width="{WIDTH - left}" height="{side}"/>')
        parts += _cells([line], allowed, left, top, cell, side)
    return _drawing(len(lines) * (side + gap) + 4, "largest error at each index of each dimension", parts)


def _cells(
    rows: Sequence[Sequence[float]], allowed: float, left: float, top: float, cell: float, side: float
) -> list[str]:
    """Cells coloured by error: one path for each colour and shade."""
    drawn: dict[tuple[str, int], list[str]] = {}
    for k, row in enumerate(rows):
        for j, error in enumerate(row):
            colour, shade = _shade(error, allowed)
            if shade:
                square = f"M{left + j * cell:.1f} {top + k * side:.1f}h{cell:.1f}v{side:.1f}h-{cell:.1f}z"
                drawn.setdefault((colour, shade), []).append(square)
    return [
        f'<path class="{colour}" fill-opacity="{0.25 + 0.75 * shade / SHADES:.2f}" d="{"".join(squares)}"/>'
        for (colour, shade), squares in sorted(drawn.items())
    ]


def _shade(error: float, allowed: float) -> tuple[str, int]:
    """The colour of an error and how strong it is; 0 is not drawn."""
    if error == inf:
        return "odd", SHADES
    if error > allowed:
        return "beyond", min(SHADES, 2 + int(log2(error / allowed))) if allowed else SHADES
    share = error / allowed if allowed else 0.0
    return "within", 0 if share < FAINTEST else 1 + int((1 - log2(share) / log2(FAINTEST)) * (SHADES - 1))


def _drawing(height: float, told: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(told)}">'
    return f"{head}{''.join(parts)}</svg>"


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _two(exponent: int) -> str:
    return "2" + str(exponent).translate(_RAISED)


def _power(exponent: int) -> str:
    return ("1", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M")[exponent] if exponent < 9 else f"1e{exponent}"


def _ulp_label(exponent: int) -> str:
    """The lower end of a bin."""
    if exponent == EXACT:
        return "0"
    if exponent == LOW:
        return "<¼"
    return {-2: "¼", -1: "½"}.get(exponent, str(2**exponent) if exponent < 10 else _two(exponent))


def _ulp_range(exponent: int) -> str:
    if exponent == EXACT:
        return "no error"
    if exponent == LOW:
        return "less than ¼ ulp"
    return f"{_ulp_label(exponent)} to {_ulp_label(exponent + 1)} ulp"
