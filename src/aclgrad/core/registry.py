"""All operators by name. A family registers its contracts when it is imported; nothing else happens at import."""

from __future__ import annotations

from collections.abc import Iterator

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


def lookup(name: str) -> Operator:
    """The operator of this name."""
    return _OPERATORS[name]
