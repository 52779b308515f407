"""What waits for a module that this package does not import: it takes long, and few programs use it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[ModuleType], None]

_waiting: dict[str, list[Action]] = {}


def when_imported(name: str, action: Action) -> None:
    """Call the action with a module, at once if that has been imported and else when it is."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    if name not in _waiting:
        sys.meta_path.insert(0, _Watch(name))
    _waiting.setdefault(name, []).append(action)


class _Watch(MetaPathFinder):
    """Sees a module being imported, once, and does what waits for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """The module's own spec, whose loader has one more thing to do; None for every other module."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            for action in _waiting.pop(fullname, ()):
                action(module)

        loader.exec_module = executed
        return spec
