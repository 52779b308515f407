"""The report as a page: one file without scripts, fonts or pictures from elsewhere, for light and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import isfinite

from ..._version import __version__
from ...core.meta import dtype_name
from ..precision.kinds import Criterion
from ..precision.standards import Judgement, standards
from . import svg
from .model import CallReport, OutputReport, Report, broken, worst_of

COLOURS = ("good", "bad", "warn")  # of the exit codes
SIGNS = {True: ('<span class="good">✓</span>', "holds"), False: ('<span class="bad">✗</span>', "does not hold"),
         None: ('<span class="soft">–</span>', "has no figures for this dtype")}  # fmt: skip


def page(report: Report) -> str:
    """The whole page."""
    title = f"{report.operator}: {report.verdict}"
    calls = [_call(report, call) for call in report.shown]
    body = "".join([_head(report), _tally(report), *calls, _sources()])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def embedded(report: Report) -> str:
    """The page in a frame of its own, for a notebook."""
    return f'<iframe srcdoc="{escape(page(report))}" style="width:100%;height:60em;border:0"></iframe>'


@cache
def _style() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _head(report: Report) -> str:
    standard = standards()[report.standard]
    level = f", level {report.level}" if "L0" in standard.figures else ""
    name = f'<p class="soft"><code>{escape(report.aclnn)}</code></p>' if report.aclnn else ""
    return (
        f'<header><p class="soft">aclgrad {__version__} · verify</p><h1>{escape(report.operator)}</h1>{name}'
        f'<p><span class="verdict {COLOURS[report.exit_code]}">{report.verdict}</span></p>'
        f'<p class="soft">by the standard <b>{standard.name}</b>{level}: {escape(standard.title)}</p></header>'
    )


def _tally(report: Report) -> str:
    """A line for each check, or of many cases how many are right."""
    hidden = len(report.calls) - len(report.shown)
    if not report.tally:
        right = len(report.calls) - len(report.wrong)
        return f"<p><b>{right} of {len(report.calls)}</b> cases are right</p>" if hidden else ""
    rows = [
        _row("td", [check, f"{calls}", f"{wrong or ''}"], ["", "number", "number bad"])
        + f"<td>{SIGNS[not wrong][0]}</td></tr>"
        for check, calls, wrong in report.tally
    ]
    rows += [_row("td", [name], [""]) + f'<td colspan="3" class="soft">left out: {escape(why)}</td></tr>'
             for name, why in report.left_out.items()]  # fmt: skip
    heads = '<th>check</th><th class="number">calls</th><th class="number">wrong</th><th></th>'
    more = len(report.wrong) - len(report.shown)
    note = f'<p class="soft">{more} more calls are not right; the json and csv forms have them.</p>' if more > 0 else ""
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="sheet scroll" style="margin-top:1rem">{table}</div>{note}'


def _call(report: Report, call: CallReport) -> str:
    several = len(report.calls) > 1
    title = ": ".join(part for part in (call.check, call.name) if part)
    parts = [f"<h2>{escape(title)}</h2>" if title and several else ""]
    if call.faults:
        items = "".join(f"<li>{escape(fault)}</li>" for fault in call.faults)
        parts.append(f'<div class="sheet bad"><ul>{items}</ul></div>')
    if call.problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in call.problems)
        parts.append(f'<div class="sheet warn"><b>Cannot compare</b><ul>{items}</ul></div>')
    if call.outputs:
        parts.append(_matrix(report, call.outputs))
    parts += [f'<p class="soft">{escape(note)}</p>' for note in call.notes]
    if call.arguments:
        rows = "".join(_row("th", [name], ["code"]) + f"<td><code>{escape(told)}</code></td></tr>"
                       for name, told in call.arguments.items())  # fmt: skip
        parts.append(f"<details><summary>the call's arguments</summary>{_scrolled(f'<table>{rows}</table>')}</details>")
    parts += [_output(report, output) for output in call.outputs]
    return "".join(parts)


def _matrix(report: Report, outputs: Sequence[OutputReport]) -> str:
    """Outputs down, standards across."""
    names = [report.standard, *(name for name in standards() if name != report.standard)]
    chosen = {report.standard: ' class="chosen"'}
    heads = "".join(
        f'<th{chosen.get(name, "")} title="{escape(standards()[name].title)}">{name}</th>' for name in names
    )
    rows = []
    for output in outputs:
        if output.problem is not None:
            cells = f'<td colspan="{len(names)}" class="warn">{escape(output.problem)}</td>'
        else:
            cells = "".join(_sign(output.judgements[name]) for name in names)
        rows.append(f"<tr><td><code>{escape(output.name)}</code></td>{cells}</tr>")
    table = f"<table><thead><tr><th>output</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="sheet scroll" style="margin-top:1rem">{table}</div>'


def _sign(judgement: Judgement) -> str:
    sign, told = SIGNS[judgement.ok]
    why = "; ".join(map(str, broken(judgement))) or told
    return f'<td title="{escape(why)}">{sign}</td>'


def _output(report: Report, output: OutputReport) -> str:
    if output.problem is not None:
        return ""
    judgement = output.judgements[report.standard]
    kind = f"{dtype_name(output.dtype)} {'×'.join(map(str, output.shape)) or 'one number'}"
    sign, _ = SIGNS[judgement.ok]
    head = f'<summary><h2>{sign} <code>{escape(output.name)}</code> <small class="soft">{kind}</small></h2></summary>'
    gauges = "".join(map(_gauge, judgement.criteria))
    parts = [_sheet(f"What {report.standard} compares", gauges, wide=True)]
    parts += _pictures(output)
    parts += _kinds(output)
    parts += _worst(output)
    state = " open" if judgement.ok is not True else ""
    return f'<details class="output"{state}>{head}<div class="grid">{"".join(parts)}</div>{_metrics(output)}</details>'


def _gauge(criterion: Criterion) -> str:
    """A comparison as a bar, which is full at the limit."""
    colour = "good" if criterion.ok else "bad"
    at_least = criterion.sign in ("≥", ">")
    share = (
        _share(criterion.value, criterion.limit) if not at_least else _share(1 - criterion.value, 1 - criterion.limit)
    )
    text = f"{criterion.value:.4g} {criterion.sign} {criterion.limit:.4g}" if criterion.ok else str(
        f"{criterion.value:.4g}, must be {criterion.sign} {criterion.limit:.4g}"
    )  # fmt: skip
    return (
        f'<div class="gauge"><span>{escape(criterion.what)}</span><span class="number {colour}">{text}</span>'
        f'<i class="{colour}"><b style="width:{100 * share:.1f}%"></b></i></div>'
    )


def _share(value: float, limit: float) -> float:
    if not isfinite(value):
        return 1.0
    return min(1.0, value / limit) if limit > 0 else float(value > 0)


def _pictures(output: OutputReport) -> Iterator[str]:
    if output.histogram is None or output.places is None or output.found is None:
        return
    total = int(output.found.values["count()"])
    if total:
        yield _sheet("How many errors are how large", svg.histogram(output.histogram, total))
        yield _sheet("Errors against the size of the values", svg.by_size(output.histogram))
    allowed = output.allowed
    pictures = [svg.places(output.places, allowed), svg.strips(output.places, allowed)]
    drawn = "".join(f"<div>{picture}</div>" for picture in pictures if picture)
    if drawn and (output.found.misplaced or output.found.values["max_error()"]):
        words = "".join(f"<li>{escape(text)}</li>" for text in output.places.beyond(allowed))
        told = f"<p>Errors beyond what our rule allows lie only in</p><ul>{words}</ul>" if words else ""
        colours = (("within", "within what our rule allows"), ("beyond", "beyond it"), ("odd", "NaN or Inf misplaced"))
        keys = " ".join(f'<span class="key"><i class="{name}"></i>{text}</span>' for name, text in colours)
        key = f'<p class="soft">{keys}</p>'
        yield _sheet("Where the errors lie", f'{told}<div class="grid">{drawn}</div>{key}', wide=True)


def _kinds(output: OutputReport) -> Iterator[str]:
    if output.found is not None and output.found.kinds:
        rows = "".join(
            _row("td", [f"{count:,}", text], ["number", ""]) + "</tr>" for text, count in output.found.kinds.items()
        )
        yield _sheet("What is not finite", f"<table>{rows}</table>")


def _worst(output: OutputReport) -> Iterator[str]:
    found = worst_of(output)
    if not found or (output.found is not None and all(judgement.ok for judgement in output.judgements.values())):
        return
    rows = []
    for bad in found:
        made = "<br>".join(f"{escape(maker.where)} = {maker.value:.8g}" for maker in output.makers.get(bad.place, ()))
        cells = [str(list(output.index(bad.place))), f"{bad.found:.10g}", f"{bad.true:.10g}", f"{bad.error:.3g}"]
        ulp = [] if output.found is None else [f"{bad.ulp:.3g}"]
        rows.append(_row("td", [*cells, *ulp], ["number"] * 5) + f'<td class="made">{made}</td></tr>')
    heads = ["at", "found", "expected", "error", *([] if output.found is None else ["ulp"]), "made of"]
    head = "".join(f'<th class="{"made" if text == heads[-1] else "number"}">{text}</th>' for text in heads)
    table = f'<table class="worst"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    yield _sheet("The worst elements", _scrolled(table), wide=True)


def _metrics(output: OutputReport) -> str:
    if output.found is None or output.naive is None or output.second is None:
        return ""
    columns = [output.found.values, output.naive.values]
    heads = ["this", "a naive run"]
    if output.second is not output.naive:
        columns, heads = [*columns, output.second.values], [*heads, "the baseline"]
    rows = "".join(
        _row("td", [name, *(_number(values.get(name)) for values in columns)], ["", *["number"] * len(columns)])
        + "</tr>"
        for name in columns[0]
    )
    head = "".join(f'<th class="number">{text}</th>' for text in heads)
    table = f"<table><thead><tr><th>metric</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>all metrics</summary><div class="sheet scroll">{table}</div></details>'


def _sources() -> str:
    rows = "".join(
        _row("td", [each.name, each.title, each.source, each.revision[:12]], ["", "", "", "number"]) + "</tr>"
        for each in standards().values()
    )
    heads = "".join(f"<th>{text}</th>" for text in ("standard", "what it is", "read from", "revision"))
    table = f"<table><thead><tr>{heads}</tr></thead>{rows}</table>"
    note = (
        "<p>Whatever the standard, a result fails that is NaN or infinite where the truth is not, or the reverse, and "
        "one that is all zeros. A naive run computes the same formula plainly in the same dtype.</p>"
    )
    return f'<details><summary>the standards</summary><div class="sheet scroll">{note}{table}</div></details>'


def _scrolled(table: str) -> str:
    return f'<div class="scroll">{table}</div>'


def _sheet(title: str, inside: str, wide: bool = False) -> str:
    return f'<section class="sheet{" wide" if wide else ""}"><h3>{title}</h3>{inside}</section>'


def _row(tag: str, cells: Iterable[str], classes: Iterable[str]) -> str:
    """A row that is left open."""
    told = "".join(f'<{tag} class="{name}">{escape(cell)}</{tag}>' for cell, name in zip(cells, classes, strict=False))
    return f"<tr>{told}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
