"""A list of cases judged: on a backend, or on outputs that were dumped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import AclgradError
from ...core.plan import Operator, allocated
from ..data.dumps import Dump
from ..precision.kinds import RULE
from ..precision.standards import LEVELS, Asked, asked
from ..report.model import CallReport, Report
from ..vendor.lists import Listed
from ..vendor.slots import read_case
from ..verdicts import own
from .truth import Truth
from .verify import Tell, judge_call, nobody


def verify_cases(
    operator: Operator,
    cases: Sequence[Listed],
    *,
    outputs: Path | None = None,
    backend: str | None = None,
    seed: int = 0,
    standard: str = RULE,
    level: str = LEVELS[0],
    tell: Tell | None = None,
) -> Report:
    """Judge a backend, or outputs that were dumped under the cases' names, on a list of cases.

    Inputs are those that lie beside the outputs, or were prepared for the list, or else are drawn.
    """
    wanted = asked(standard, level)
    report = Report(operator.spec.name, operator.spec.aclnn, standard, level)
    for case in cases:
        (tell or nobody)(case.name)
        report.calls.append(_judge_case(operator, case, outputs, backend, seed, wanted))
    return report


def _judge_case(
    operator: Operator, case: Listed, outputs: Path | None, backend: str | None, seed: int, asked: Asked
) -> CallReport:
    dump = source = Dump(case.name, Path(), dtypes=case.dtypes)
    try:
        args = case.call(operator.spec, seed).args
        truth = Truth(operator, args, case.dtypes)
        if outputs is None:
            dump = Dump(case.name, Path(), outputs=_computed(truth, backend))
        else:
            dump = read_case(outputs, case.name, operator, args, truth.metas)
    except AclgradError as fault:
        return CallReport(case.name, problems=[str(fault)])
    source.arguments.update(zip((arg.name for arg in operator.spec.args), args, strict=True))
    source.arguments.update(dump.arguments)
    dump.arguments = {}
    return judge_call(operator, source, dump, None, False, asked, nobody)


def _computed(truth: Truth, backend: str | None) -> dict[str, Any]:
    """What a backend writes, into outputs of these dtypes; those that it does not produce are None."""
    operator, spec = truth.operator, truth.spec
    outs = allocated([truth.metas[name] for name in spec.out_names])
    mine = own(spec, truth.args)
    if outs:
        operator(*mine, out=outs[0] if len(outs) == 1 else outs, backend=backend)
    else:
        operator(*mine, backend=backend)
    return dict(zip(spec.written_names, spec.written(mine, outs), strict=True))
