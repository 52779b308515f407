"""All operators by name. A family registers its contracts when it is imported; nothing else happens at import."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from types import ModuleType

from .errors import InvalidArgument
from .plan import Operator
from .spec import OpSpec

_OPERATORS: dict[str, Operator] = {}
_followers: list[Callable[[Operator], None]] = []


def register(spec: OpSpec) -> Operator:
    """Make a contract callable and known under its name."""
    taken = _OPERATORS.get(spec.name) or next(
        (o for o in _OPERATORS.values() if spec.aclnn == o.spec.aclnn != ""), None
    )
    if taken is not None:
        raise ValueError(
            f"operator {spec.name}{f' = {spec.aclnn}' if spec.aclnn else ''} of {spec.package} is registered twice, "
            f"{taken.spec.package} has it"
        )
    operator = Operator(spec)
    for follower in _followers:
        follower(operator)
    _OPERATORS[spec.name] = operator
    return operator


def follow(follower: Callable[[Operator], None]) -> None:
    """Tell `follower` now of every operator, and later of each that is registered."""
    for operator in _OPERATORS.values():
        follower(operator)
    _followers.append(follower)


def forget(name: str) -> None:
    """Take back the registration of an operator that no door knows of yet."""
    del _OPERATORS[name]


def operators() -> Iterator[Operator]:
    """Every registered operator, in order of registration."""
    return iter(_OPERATORS.values())


def aclnn_operators() -> Iterator[Operator]:
    """Those that a document knows: what the doors of aclnn, C and the command line have."""
    return (operator for operator in operators() if operator.spec.aclnn)


def families() -> tuple[str, ...]:
    """The packages of all families, in order of registration."""
    return tuple(dict.fromkeys(operator.spec.package for operator in operators()))


def part(family: str, name: str) -> ModuleType | None:
    """An optional module of a family's package; None if the family has none of this name."""
    module = f"{family}.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    return importlib.import_module(module)


def lookup(name: str) -> Operator:
    """The operator of this name."""
    return _OPERATORS[name]


def find(name: str, among: Iterable[Operator] | None = None) -> Operator:
    """The operator of a name that a person wrote: in Python or in C, of either phase, in upper or lower case."""
    candidates = list(operators() if among is None else among)
    known = {written.lower(): operator for operator in candidates for written in _names(operator)}
    operator = known.get(name.lower())
    if operator is not None:
        return operator
    near = get_close_matches(name.lower(), known, n=1)
    if near:
        meant = next(written for written in _names(known[near[0]]) if written.lower() == near[0])
        raise InvalidArgument(f"{name!r} is no operator, did you mean {meant}?", "operator")
    expected = ", ".join(operator.spec.name for operator in candidates)
    raise InvalidArgument(f"{name!r} is no operator, expected one of {expected}", "operator")


def _names(operator: Operator) -> tuple[str, ...]:
    spec = operator.spec
    return (spec.name, spec.aclnn, f"{spec.aclnn}GetWorkspaceSize") if spec.aclnn else (spec.name,)
