"""Doors that the families furnish: what a module that a family may have exports, all families' together."""

from __future__ import annotations

from typing import Any

from ..core.registry import families, part


def modules(name: str) -> dict[str, Any]:
    """The modules of this name, by their full names, of all families that have one."""
    found = ((f"{family}.{name}", part(family, name)) for family in families())
    return {path: module for path, module in found if module is not None}


def collected(name: str) -> dict[str, Any]:
    """Everything that these modules export, by its name; `__all__` says what."""
    return {word: getattr(module, word) for module in modules(name).values() for word in module.__all__}
