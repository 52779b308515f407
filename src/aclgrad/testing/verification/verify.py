"""Somebody's outputs judged: against the formula in float64, or against golden data that were written before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import BadDump
from ...core.meta import meta_of
from ...core.plan import Operator
from ...core.registry import find
from ...core.spec import OpSpec
from ..data.described import by_name
from ..data.dumps import Dump, read_dumps
from ..precision.kinds import RULE
from ..precision.standards import LEVELS, Asked, asked
from ..report.model import CallReport, Report
from .arrays import as_tensors
from .expected import Expectation, expectation
from .judging import judge_outputs

Place = Path | str
Tell = Callable[[str], None]
"""Told the name of each output before it is measured."""


def verify(
    op: Operator | Callable[..., Any] | str,
    inputs: Mapping[str, Any] | Sequence[Any] | Place | None,
    outputs: Mapping[str, Any] | Sequence[Any] | Tensor | Place,
    *,
    standard: str = RULE,
    level: str = LEVELS[0],
    baseline: Mapping[str, Any] | Sequence[Any] | Tensor | Place | None = None,
    call: str | None = None,
    tell: Tell | None = None,
) -> Report:
    """Judge what somebody computed, by a standard of precision.

    `op` is an operator by its name in Python or in C, or its function. `inputs` and `outputs` are tensors and values in
    the contract's order or by their names, of the shapes that the operator's documentation gives (of torch or numpy),
    or a folder of files;
    without `inputs` the folder of outputs holds them too. `baseline` are the same outputs of another implementation,
    which some standards compare with; without it, that is the formula run plainly in the same dtype. `call` chooses a
    call of a msprobe dump.

    >>> import torch, aclgrad
    >>> x, grad = torch.linspace(-4, 4, 9), torch.ones(9)
    >>> verify("hardsigmoid_backward", [grad, x], grad / 6 * ((x > -3) & (x < 3))).ok
    True
    >>> wrong = verify("hardsigmoid_backward", [grad, x], grad / 6 * ((x >= -3) & (x < 3)))
    >>> wrong.verdict, wrong.calls[0].outputs[0].worst.by_error[0].place
    ('not precise enough', 1)
    """
    operator = op if isinstance(op, Operator) else find(op if isinstance(op, str) else op.__name__)
    wanted = asked(standard, level)
    report = Report(operator.spec.name, operator.spec.aclnn, standard, level)
    given = _dumps(operator, inputs, call, results_only=False) if inputs is not None else None
    found = _dumps(operator, outputs, call, results_only=given is not None, as_outputs=True)
    second = None if baseline is None else _dumps(operator, baseline, call, results_only=True, as_outputs=True)
    for source, dump, other in _paired(given, found, second):
        report.calls.append(judge_call(operator, source, dump, other, baseline is not None, wanted, tell or nobody))
    return report


def nobody(_: str) -> None:
    """Is told nothing."""


def _dumps(
    operator: Operator, given: Any, call: str | None, *, results_only: bool, as_outputs: bool = False
) -> list[Dump]:
    """What was given as calls: a folder's, or one of tensors in memory."""
    if isinstance(given, Path | str):
        return read_dumps(Path(given), operator, call, results_only=results_only)
    spec = operator.spec
    names = spec.written_names if as_outputs else [arg.name for arg in spec.args]
    given = as_tensors(given)
    if isinstance(given, Mapping):
        values = by_name(spec, given)
    else:
        if not isinstance(given, Tensor | Sequence):
            what = "outputs are" if as_outputs else "inputs are"
            raise BadDump(f"{what} {type(given).__name__}, expected tensors or a folder of their files")
        listed = [given] if isinstance(given, Tensor) else list(given)
        if not as_outputs:
            listed = list(spec.completed(listed))
        if len(listed) > len(names):
            kind = "outputs" if as_outputs else "arguments"
            raise BadDump(f"{len(listed)} {kind} are given, {spec.name} has {len(names)}: {', '.join(names)}")
        values = dict(zip(names, listed, strict=False))
    dump = Dump("", Path())
    (dump.outputs if as_outputs else dump.arguments).update(values)
    return [dump]


def _paired(
    given: list[Dump] | None, found: list[Dump], second: list[Dump] | None
) -> list[tuple[Dump | None, Dump | None, Dump | None]]:
    """Inputs, outputs and baseline that belong together: by their places in the folders, or as the only ones."""
    alone = all(dumps is None or len(dumps) == 1 for dumps in (given, found, second))
    tables = [
        None if dumps is None else {"" if alone else dump.name: dump for dump in dumps}
        for dumps in (given, found, second)
    ]
    names = dict.fromkeys(name for table in tables[:2] if table is not None for name in table)
    first, results, others = tables
    return [
        (
            results.get(name) if first is None and results else (first or {}).get(name),
            (results or {}).get(name),
            (others or {}).get(name),
        )
        for name in names
    ]


def judge_call(
    operator: Operator,
    source: Dump | None,
    dump: Dump | None,
    second: Dump | None,
    compared: bool,
    asked: Asked,
    tell: Tell,
) -> CallReport:
    """The report on one call: what there is of its inputs, its outputs and the baseline's."""
    named = dump or source
    report = CallReport(named.name if named else "")
    if source is None or dump is None:
        report.problems.append("no outputs were found for these inputs" if source else "these outputs have no inputs")
        return report
    report.problems += dict.fromkeys([*source.problems, *dump.problems])
    try:
        expected = expectation(operator, source, None if dump is source else dump)
    except BadDump as fault:
        report.problems.append(str(fault))
        return report
    report.arguments = _in_words(operator.spec, expected)
    if compared and second is None:
        report.problems.append("the baseline has no such call")
    if not expected.outputs:
        report.problems.append("this call produces nothing that could be compared")
    judge_outputs(report, expected, dump, second, asked, tell)
    return report


def _in_words(spec: OpSpec, expected: Expectation) -> dict[str, str]:
    """The arguments as a person wants to see them."""

    def told(value: Any) -> str:
        if isinstance(value, Tensor):
            return str(meta_of(value))
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(told, value))}]"
        return "null" if value is None else str(value)

    return {param.aclnn: told(value) for param, value in zip(spec.args, expected.args, strict=True)}
