"""`lstm` and its gradient, or those with resets where there are some: which operators, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Formula
from ...core.plan import Operator
from ...core.textbook import textbook
from . import spec, spec_resets

FORWARD, BACKWARD = (
    (spec.lstm, spec_resets.lstm_with_resets),
    (spec.lstm_backward, spec_resets.lstm_with_resets_backward),
)
Pair = tuple[Operator, Operator]


def operator(pair: Pair, reset: Tensor | None) -> Operator:
    """That of a pair which such a call needs."""
    return pair[0] if reset is None else pair[1]  # the compiler of torch 2.11 takes no bool for an index


def op(pair: Pair, reset: Tensor | None) -> Any:
    """The same in torch's dispatcher."""
    return getattr(torch.ops.aclgrad, operator(pair, reset).spec.name)


def with_reset(pair: Pair, arguments: Sequence[Any], reset: Tensor | None) -> Sequence[Any]:
    """The arguments, with `reset` in its place."""
    if reset is None:
        return arguments
    place = list(pair[1].spec.params).index("reset")
    return (*arguments[:place], reset, *arguments[place:])


def formula(reset: Tensor | None) -> Formula:
    """The textbook's, of the arguments of `lstm` and behind them, if there is one, `reset`."""
    return textbook(spec.lstm) if reset is None else _reset_behind


def _reset_behind(*arguments: Any) -> Any:
    *others, reset = arguments
    return textbook(spec_resets.lstm_with_resets)(*with_reset(FORWARD, others, reset))
