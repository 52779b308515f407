"""`torch.utils.flop_counter.FlopCounterMode` counts the ops, by the `flops` of their contracts.

Torch's counter imports Triton, which takes longer than this package does. So nothing is imported for it: the formulas
wait until somebody imports the counter.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from ..core.plan import Operator

COUNTER = "torch.utils.flop_counter"

_waiting: list[tuple[Operator, Any]] = []


def register_flops(operator: Operator, qualified_name: str) -> None:
    """Tell torch's counter of an op with matrix products, at once if it is there and else when it comes."""
    if operator.spec.flops is None:
        return
    namespace, name = qualified_name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    if COUNTER in sys.modules:
        _tell(sys.modules[COUNTER], operator, packet)
        return
    if not _waiting:
        sys.meta_path.insert(0, _Watch())
    _waiting.append((operator, packet))


def _tell(counter: ModuleType, operator: Operator, packet: Any) -> None:
    counter.register_flop_formula(packet, get_raw=True)(formula(operator, packet.default._schema.arguments))


def formula(operator: Operator, arguments: Sequence[Any]) -> Callable[..., int]:
    """Counts a call of an op of these arguments, from their metadata."""
    flops = operator.spec.flops
    assert flops is not None  # asked before
    defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    names = [param.name for param in operator.spec.args]

    def count(*args: Any, out_val: Any = None, **named: Any) -> int:  # noqa: ARG001  torch passes the results too
        given = {**defaults, **named, **dict(zip(names, args, strict=False))}
        call, _ = operator.judge([given[name] for name in names])
        return flops(call)

    return count


class _Watch(MetaPathFinder):
    """Sees the counter being imported, once, and tells it what waits."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """The counter's own spec, whose loader has one more thing to do; None for every other module."""
        if fullname != COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec and spec.loader
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            for operator, packet in _waiting:
                _tell(module, operator, packet)

        loader.exec_module = executed
        return spec
