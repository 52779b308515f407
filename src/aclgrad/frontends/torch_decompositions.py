"""What each op is in torch's own operations, for runtimes that have no aclgrad."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..core.dispatch import NAMESPACE
from ..core.plan import Operator
from ..core.registry import operators
from ..core.textbook import by_the_book
from .torch_library import returned


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The textbook formula of every op, as `run_decompositions` of an exported program takes them.

    A program of torch's operations alone runs where aclgrad is not installed, and goes on to ONNX. An LSTM in it has
    all its steps one after another, so their number is the example's. Ops that update an argument are not among them.

    >>> import torch, aclgrad.nn
    >>> formula = aclgrad.nn.decompositions()[torch.ops.aclgrad.hardsigmoid.default]
    >>> formula(torch.tensor([-4.0, 0.0, 3.0]))  # program.run_decompositions(…) calls it in place of the op
    tensor([0.0000, 0.5000, 1.0000])
    """
    found: dict[Any, Callable[..., Any]] = {}
    for operator in operators():
        if not operator.spec.updated:
            formula = partial(_by_the_book, operator)
            op = getattr(getattr(torch.ops, NAMESPACE), operator.spec.name)
            for overload in op.overloads():
                found[getattr(op, overload)] = formula
    return found


def _by_the_book(operator: Operator, *args: Any, **flags: bool) -> Any:
    results = by_the_book(operator, *operator.spec.completed(args), asked=any(flags.values()))
    return returned(operator, results, args)
