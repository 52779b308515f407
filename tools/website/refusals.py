"""What an operator refuses, in the order of its checks: its rules are run over the named invalid calls of its tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from aclgrad.core.errors import AclgradError
from aclgrad.core.plan import Operator
from aclgrad.core.soc import DEFAULT_SOC
from aclgrad.core.spec import Call, Rule
from aclgrad.testing.cases import Invalid, suite


@dataclass(frozen=True)
class Refusal:
    """What one check says of some arguments: its place in the order, words, error; whether Python refuses it too."""

    check: int
    arguments: tuple[str, ...]
    words: str
    error: AclgradError
    in_python: bool


def refusals(operator: Operator) -> list[Refusal]:
    """Those of all named invalid calls, in the order of the checks; arguments of which the same is said stand together.

    A call that no check of phase one refuses is refused by its addresses: outputs that share memory.
    """
    found: dict[tuple[int, str, bool], Refusal] = {}
    legal = _legal(operator)
    for invalid in suite(operator.spec).invalid:
        refused = _refused(operator, invalid, legal)
        if refused is None:
            continue
        check, error = refused
        name = error.argument if error.argument and str(error).startswith(f"{error.argument} ") else ""
        words, in_python = str(error).removeprefix(name).strip(), "python" in invalid.doors
        known = found.get((check, words, in_python), Refusal(check, (), words, error, in_python))
        if name not in known.arguments:
            known = replace(known, arguments=(*known.arguments, *([name] if name else [])))
        found[check, words, in_python] = known
    return sorted(found.values(), key=lambda refusal: refusal.check)


def _legal(operator: Operator) -> dict[str, Any]:
    """Arguments and outputs of the first case, by name."""
    case = suite(operator.spec).cases[0].build()
    outs = operator.plan(case, backend="reference").allocate()
    return dict(zip(operator.spec.params, (*case, *outs), strict=True))


def _refused(operator: Operator, invalid: Invalid, legal: dict[str, Any]) -> tuple[int, AclgradError] | None:
    """The check that refuses a call first, and its error, through the strictest of the doors that do.

    Check 0 is that of the Python types; behind the rules of the contract come those of every operator.
    """
    spec, checks = operator.spec, 0

    def counted(rule: Rule) -> Rule:
        def check(call: Call) -> None:
            nonlocal checks
            checks += 1
            rule(call)

        return check

    def last(call: Call) -> None:  # noqa: ARG001  refuses nothing: what is refused later is refused by none of the rules
        return None

    strict = bool(spec.aclnn) and "aclnn" in invalid.doors
    values = invalid.apply(legal)
    gives_outs = strict or any(name in spec.out_names for name in invalid.changes)
    watched = Operator(replace(spec, rules=tuple(counted(rule) for rule in (*spec.rules, last))))
    try:
        watched.judge(
            [values[arg.name] for arg in spec.args],
            [values[name] for name in spec.out_names] if gives_outs else None,
            strict=strict,
            soc=invalid.environment.get("ACLGRAD_SOC", DEFAULT_SOC) if strict else None,
        )
    except AclgradError as refusal:
        return checks, refusal
    return None
