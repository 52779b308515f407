"""A list of cases judged: on a backend, or on outputs that were dumped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...core.errors import AclgradError, BadDump
from ...core.plan import Operator, allocated
from ..data.dumps import Dump, read_dumps
from ..precision.kinds import RULE
from ..precision.standards import LEVELS, standard_named
from ..report.model import CallReport, Report
from ..vendor.lists import Listed
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
    """Judge a backend, or outputs that were dumped in folders of the cases' names, on a list of cases."""
    standard_named(standard)
    report = Report(operator.spec.name, operator.spec.aclnn, standard, level)
    for case in cases:
        (tell or nobody)(case.name)
        report.calls.append(_judge_case(operator, case, outputs, backend, seed, level))
    return report


def _judge_case(
    operator: Operator, case: Listed, outputs: Path | None, backend: str | None, seed: int, level: str
) -> CallReport:
    try:
        source = Dump(case.name, Path(), dtypes=case.dtypes)
        args = case.call(operator.spec, seed).args
        source.arguments.update(zip((arg.name for arg in operator.spec.args), args, strict=True))
        if outputs is None:
            dump = Dump(case.name, Path(), outputs=_computed(operator, args, case.dtypes, backend))
        else:
            dump, *others = read_dumps(outputs / case.name, operator, results_only=True)
            if others:
                raise BadDump(f"{outputs / case.name} holds {len(others) + 1} calls, expected one")
    except AclgradError as fault:
        return CallReport(case.name, problems=[str(fault)])
    return judge_call(operator, source, dump, None, False, level, nobody)


def _computed(
    operator: Operator, args: Sequence[Any], dtypes: Mapping[str, torch.dtype], backend: str | None
) -> dict[str, Any]:
    """What a backend writes, into outputs of these dtypes; those that it does not produce are None."""
    truth = Truth(operator, args, dtypes)
    outs = allocated([truth.metas[name] for name in operator.spec.out_names])
    mine = own(operator.spec, args)
    if outs:
        operator(*mine, out=outs[0] if len(outs) == 1 else outs, backend=backend)
    else:
        operator(*mine, backend=backend)
    return dict(zip(operator.spec.written_names, operator.spec.written(mine, outs), strict=True))
