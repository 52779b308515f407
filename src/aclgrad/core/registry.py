"""All operators by name. A family registers its contracts when it is imported; nothing else happens at import."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

from .plan import Operator
from .spec import OpSpec

_OPERATORS: dict[str, Operator] = {}


def register(spec: OpSpec) -> Operator:
    """Make a contract callable and known under its name."""
    if spec.name in _OPERATORS:
        raise ValueError(f"operator {spec.name} is registered twice")
    _OPERATORS[spec.name] = operator = Operator(spec)
    return operator


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
