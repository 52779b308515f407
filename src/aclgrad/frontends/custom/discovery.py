"""Which families there are outside this package: those that are installed, and those that the user names.

An installed package announces itself by an entry point of the group `aclgrad.operators`, whose value is the name of the
family's package. `ACLGRAD_PLUGINS` names others, separated like the folders of PATH: packages that can be imported, or
folders that are one. A family has at least `reference` and `cases` beside what registers its contracts.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core import registry
from ...core.errors import InvalidArgument
from ...core.plan import Operator

GROUP = "aclgrad.operators"
VARIABLE = "ACLGRAD_PLUGINS"
CHOSEN = "_aclgrad_plugins"
"""What a C program's library sets in `sys` instead of the variable."""
PARTS = ("reference", "cases")
"""What the package of a family has to have, beside the contracts."""

_OURS = __name__.partition(".")[0] + "."


def load() -> None:
    """Import all of them. One that is installed and broken is left out, with a warning; a named one is an error."""
    for point in entry_points(group=GROUP):
        try:
            _load(point.value)
        except Exception as fault:  # noqa: BLE001  # a stranger's package may fail in any way
            warnings.warn(
                f"the operators of {point.value} are left out: {type(fault).__name__}: {fault}",
                RuntimeWarning,
                stacklevel=2,
            )
    for word in named():
        try:
            _load(word)
        except InvalidArgument:
            raise
        except Exception as fault:
            raise InvalidArgument(
                f"{VARIABLE} names {word!r}, which fails with {type(fault).__name__}: {fault}", VARIABLE
            ) from fault


def named() -> list[str]:
    """What the variable names, folders by their absolute paths; in a C program, what its library was built with."""
    text = getattr(sys, CHOSEN, os.environ.get(VARIABLE, ""))
    words = [word for word in text.split(os.pathsep) if word]
    return [str(Path(word).absolute()) if os.sep in word or Path(word).is_dir() else word for word in words]


def outside() -> Iterator[Operator]:
    """The operators from outside."""
    return (operator for operator in registry.operators() if not operator.spec.package.startswith(_OURS))


def exported(name: str) -> Any:
    """What a family from outside has for the namespace `aclgrad`: what its `__all__` names, or the operator itself."""
    for operator in outside():
        package = sys.modules.get(operator.spec.package)
        if name in getattr(package, "__all__", ()):
            return getattr(package, name)
        if name == operator.spec.name:
            return operator
    raise AttributeError(name)


def names() -> set[str]:
    """All such names."""
    found: set[str] = set()
    for operator in outside():
        found |= {operator.spec.name, *getattr(sys.modules.get(operator.spec.package), "__all__", ())}
    return found


def _load(word: str) -> None:
    before = {operator.spec.name for operator in registry.operators()}
    package = None
    try:
        package = _imported(word)
        mine = [operator for operator in outside() if operator.spec.package == package.__name__]
        if _is_being_imported(package):
            return  # the user imports it, and so has aclgrad imported; its contracts are about to come
        _require(word, package, mine)
    except BaseException:
        for operator in list(registry.operators()):
            if operator.spec.name not in before:
                registry.forget(operator.spec.name)
        raise


def _require(word: str, package: ModuleType, mine: list[Operator]) -> None:
    if not mine:
        raise InvalidArgument(
            f"{word!r} has registered no operator whose package is {package.__name__!r}: expected "
            "register(OpSpec(…, package=__package__)) when it is imported",
            VARIABLE,
        )
    for name in PARTS:
        if importlib.util.find_spec(f"{package.__name__}.{name}") is None:
            raise InvalidArgument(f"{word!r} has no {name}.py, expected one beside the contracts", VARIABLE)


def _imported(word: str) -> ModuleType:
    """A package by its name, or by its folder."""
    if os.sep not in word:
        return importlib.import_module(word)
    folder = Path(word).resolve()
    file = folder / "__init__.py"
    if not file.is_file():
        raise InvalidArgument(f"{VARIABLE} names {word}, which is no package: there is no {file}", VARIABLE)
    name = folder.name
    present = sys.modules.get(name)
    if present is None:
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(folder)])
        if spec is None or spec.loader is None or not name.isidentifier():
            raise InvalidArgument(f"{VARIABLE} names {word}, and {name!r} is no name of a package", VARIABLE)
        present = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(present)
        except BaseException:
            del sys.modules[name]
            raise
    elif Path(present.__file__ or "").resolve() != file:
        raise InvalidArgument(
            f"{VARIABLE} names {word}, but another {name!r} is imported already, from {present.__file__}", VARIABLE
        )
    return present


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))
