"""`torch.utils.flop_counter.FlopCounterMode` counts the ops, by the `flops` of their contracts.

Torch's counter imports Triton, which takes longer than this package does. So nothing is imported for it: the formulas
wait until somebody imports the counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from ..core.plan import Operator
from .late import when_imported

COUNTER = "torch.utils.flop_counter"


def register_flops(operator: Operator, qualified_name: str) -> None:
    """Tell torch's counter of an op with matrix products, at once if it is there and else when it comes."""
    if operator.spec.flops is None:
        return
    namespace, name = qualified_name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name)
    when_imported(COUNTER, lambda counter: _tell(counter, operator, packet))


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
