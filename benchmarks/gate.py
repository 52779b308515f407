"""Correctness before speed: a row whose gate is red gets no speed.

Every output of the very call that is timed, written into poisoned memory, is judged by the rule of aclgrad.testing: as
close to the formula in float64 as twice a naive run of the formula in the row's dtype, plus a few ulp of the scale.
The truth is computed in full for every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aclgrad.core.plan import Operator
from aclgrad.testing import Verdict, poisoned_memory, verdicts
from aclgrad.testing.verdicts import run

MESSAGE = 200  # characters of an error that fit a line


@dataclass(frozen=True)
class Gate:
    """Whether the outputs are right, how much of the allowed error they use, and a sentence for people."""

    passed: bool
    share_of_allowed: float
    text: str


def check(operator: Operator, args: Sequence[Any], dtype: torch.dtype) -> Gate:
    """Run the operator once on these arguments and judge every output."""

    def judged() -> Mapping[str, Verdict]:
        with poisoned_memory():
            written = run(operator, args)
        return dict(verdicts(operator.spec, args, written, dtype))

    return verdict_of(judged)


def verdict_of(judged: Callable[[], Mapping[str, Verdict]]) -> Gate:
    """One gate from the verdicts on all results; what raises is as wrong as what errs, and the rest still runs."""
    try:
        found = judged()
    except Exception as fault:  # noqa: BLE001  whatever it is
        return Gate(False, math.inf, f"{type(fault).__name__}: {str(fault)[:MESSAGE]}")
    wrong = [f"{name}: {verdict}" for name, verdict in found.items() if not verdict.ok]
    share = max((_share(verdict) for verdict in found.values()), default=0.0)
    ulp = max((verdict.ulp for verdict in found.values()), default=0.0)
    text = "; ".join(wrong) or f"{len(found)} outputs in full against float64: {ulp:.2g} ulp of scale at most"
    return Gate(not wrong, share, text)


def _share(verdict: Verdict) -> float:
    pairs = ((verdict.max_error, verdict.max_allowed), (verdict.rms_error, verdict.rms_allowed))
    return max((error / allowed for error, allowed in pairs if allowed), default=0.0)
