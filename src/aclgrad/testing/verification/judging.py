"""One output beside what is expected of it: whether it is there, whether it is what it should be, how precise it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from ...core.errors import BadDump
from ...core.meta import Meta, meta_of
from ...frontends.dumps.files import Stored
from ..data.dumps import Dump
from ..precision.kinds import RULE, Criterion, Measured
from ..precision.places import Places
from ..precision.standards import Asked, Judgement, all_measures, standards
from ..precision.statistics import Flat, Statistics, flat, measure
from ..precision.watchers import Bad, Histogram, Worst
from ..report.model import CallReport, OutputReport, worst_of
from .arrays import require_values
from .expected import Expectation, Expected
from .makers import makers

SHOWN = 8  # unequal integers that are listed


def judge_outputs(
    report: CallReport,
    expected: Expectation,
    dump: Dump,
    second: Dump | None,
    asked: Asked,
    tell: Callable[[str], object] = str,
) -> None:
    """Add what there is to say about each output of a call, and about those that it should not have."""
    for output in expected.outputs:
        tell(output.label)
        judged = judge_output(expected, output, dump, second, asked)
        if judged is not None:
            report.outputs.append(judged)
        else:
            report.notes.append(f"{output.label} is not there, and need not be: it was not judged")
    for label in _too_many(expected, dump):
        report.outputs.append(OutputReport(label, problem="is there, but this call does not produce it"))


def _too_many(expected: Expectation, dump: Dump) -> Iterator[str]:
    """The labels of what was dumped beside the outputs that a call has."""
    members = Counter(output.name for output in expected.outputs)
    lists = {output.name for output in expected.outputs if output.member is not None}
    for name, value in dump.outputs.items():
        label = expected.operator.spec.params[name].aclnn
        if name not in members and value is not None:
            yield label
        elif name in lists and isinstance(value, list | tuple):
            beyond = enumerate(value[members[name] :], members[name])
            yield from (f"{label}[{k}]" for k, item in beyond if item is not None)


def judge_output(
    expected: Expectation, output: Expected, dump: Dump, second: Dump | None, asked: Asked
) -> OutputReport | None:
    """The report on one output; None where it may be left out, and is."""
    report = OutputReport(output.label, output.meta.dtype, output.meta.shape)
    try:
        found = _found(dump, output)
        if found is None:
            return None if output.optional else _with(report, "is missing")
        if not output.meta.dtype.is_floating_point:
            return _equal(report, found, output.true(), output.meta.numel)
        return _measured(report, expected, output, found, None if second is None else _baseline(second, output), asked)
    except BadDump as fault:
        return _with(report, str(fault))


def _with(report: OutputReport, problem: str) -> OutputReport:
    report.problem = problem
    return report


def _found(dump: Dump, output: Expected) -> Tensor | None:
    """The tensor that was dumped for an output; None if there is none."""
    value: Any = dump.outputs.get(output.name)
    if output.member is None:
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
    elif isinstance(value, list | tuple):
        value = value[output.member] if output.member < len(value) else None
    elif value is not None:
        raise BadDump(f"is one tensor, expected a list of them: {output.label} and its fellows")
    if value is None:
        return None
    tensor = value.load(output.meta.dtype, output.meta.shape) if isinstance(value, Stored) else value
    if not isinstance(tensor, Tensor):
        raise BadDump(f"is {type(tensor).__name__}, expected a tensor")
    require_values("it", tensor)
    if tuple(tensor.shape) != output.meta.shape or tensor.dtype != output.meta.dtype:
        raise BadDump(f"is {meta_of(tensor)}, expected {output.meta}")
    return tensor.detach().cpu()


def _baseline(second: Dump, output: Expected) -> Tensor:
    """The same of another implementation, which must be there: nothing else takes its place."""
    try:
        found = _found(second, output)
    except BadDump as fault:
        raise BadDump(f"in the baseline: {fault}") from None
    if found is None:
        raise BadDump("in the baseline: is missing")
    return found


def _measured(
    report: OutputReport, expected: Expectation, output: Expected, found: Tensor, other: Tensor | None, asked: Asked
) -> OutputReport:
    meta, true = output.meta, output.true()
    report.histogram, report.worst, report.places = Histogram(), Worst(), Places(meta.shape)
    report.found, (report.histogram, report.worst, report.places) = measure(  # type: ignore[assignment]
        flat(found), true, meta.numel, meta.dtype, all_measures(meta.dtype),
        lambda: (Histogram(), Worst(), Places(meta.shape)),
    )  # fmt: skip
    report.naive = output.naive()
    report.second = report.naive if other is None else _statistics(other, true, meta)
    facts = Measured(
        report.found, report.naive, report.second, meta.dtype, output.precision, output.naive_precision
    )  # fmt: skip
    report.judgements = {name: standard.judge(facts, asked.level) for name, standard in standards().items()}
    if not all(report.judgements[name].ok for name in (asked.standard, RULE)):
        report.makers = makers(expected, output, [bad.place for bad in worst_of(report)])
    return report


def _statistics(found: Tensor, true: Flat, meta: Meta) -> Statistics:
    return measure(flat(found), true, meta.numel, meta.dtype, all_measures(meta.dtype))[0]


def _equal(report: OutputReport, found: Tensor, true: Flat, numel: int) -> OutputReport:
    """Integers and bools must be equal, whatever the standard."""
    mine, worst, step = flat(found), Worst(), 1 << 20
    for start in range(0, numel, step):
        a, b = mine(start, min(start + step, numel)), true(start, min(start + step, numel))
        wrong = (a != b).nonzero()[:, 0]
        report.unequal += len(wrong)
        for k in wrong[: SHOWN - len(worst.by_error)].tolist():
            values = float(a[k]), float(b[k])
            worst.by_error.append(Bad(start + k, *values, abs(values[0] - values[1]), 0.0))
    report.worst = worst
    unequal = Criterion("unequal elements", report.unequal, "≤", 0)
    report.judgements = {name: Judgement(unequal.ok, (unequal,)) for name in standards()}
    return report
