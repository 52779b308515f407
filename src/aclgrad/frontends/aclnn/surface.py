"""Every name of the aclnn door: the operators' pairs, the functions about handles and executors, the constants."""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import IntEnum
from types import ModuleType
from typing import Any

from ...core.registry import aclnn_operators
from ..acl import enums, meta
from . import dumps, rebinding
from .pairs import make_pair

MODULES: tuple[ModuleType, ...] = (meta, dumps, rebinding)
"""Where the functions are that belong to no operator."""

ENUMERATIONS: tuple[type[IntEnum], ...] = (enums.AclDataType, enums.AclFormat, enums.AclnnStatus)


def pairs(known: Container[str] = ()) -> dict[str, Callable[..., Any]]:
    """The functions of all operators, but of those that are known."""
    missing = [operator for operator in aclnn_operators() if operator.spec.aclnn not in known]
    return {function.__name__: function for operator in missing for function in make_pair(operator)}


def functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The functions of one of `MODULES` that have a name in C."""
    public = ((name, value) for name, value in vars(module).items() if name.startswith("acl") and name != "aclnn_call")
    return {name: value for name, value in public if callable(value)}


def surface() -> dict[str, Any]:
    """All of them."""
    names: dict[str, Any] = pairs()
    for module in MODULES:
        names |= functions(module)
    for enumeration in ENUMERATIONS:
        names |= {item.name: item for item in enumeration}
    return names
