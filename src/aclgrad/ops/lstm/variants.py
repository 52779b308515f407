"""`lstm` and its gradient, or those with resets, or those of packed rows: which operators, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.autograd import Formula
from ...core.plan import Operator
from ...core.textbook import textbook
from . import spec, spec_packed, spec_resets

Variants = tuple[Operator, Operator, Operator]
FORWARD: Variants = (spec.lstm, spec_resets.lstm_with_resets, spec_packed.lstm_packed)
BACKWARD: Variants = (
    spec.lstm_backward,
    spec_resets.lstm_with_resets_backward,
    spec_packed.lstm_packed_backward,
)
ARGUMENTS = len(spec.lstm.spec.args)


def operator(variants: Variants, reset: Tensor | None, packed: bool) -> Operator:
    """The one that such a call needs."""
    if packed:
        return variants[2]
    return variants[0] if reset is None else variants[1]  # the compiler of torch 2.11 takes no bool for an index


def op(variants: Variants, reset: Tensor | None, packed: bool) -> Any:
    """The same in torch's dispatcher."""
    return getattr(torch.ops.aclgrad, operator(variants, reset, packed).spec.name)


def with_reset(variants: Variants, arguments: Sequence[Any], reset: Tensor | None, packed: bool) -> Sequence[Any]:
    """The arguments of the plain operator, with `reset` where the one that is called has it."""
    if reset is None and not packed:
        return arguments
    place = list(operator(variants, reset, packed).spec.params).index("reset")
    return (*arguments[:place], reset, *arguments[place:])


def formula(reset: Tensor | None, packed: bool) -> Formula:
    """The textbook's, of the arguments of `lstm` and behind them, if there is one, `reset`."""
    return textbook(spec.lstm) if reset is None and not packed else partial(_reset_behind, packed)


def _reset_behind(packed: bool, *arguments: Any) -> Any:
    reset = arguments[ARGUMENTS] if len(arguments) > ARGUMENTS else None
    given = with_reset(FORWARD, arguments[:ARGUMENTS], reset, packed)
    return textbook(operator(FORWARD, reset, packed))(*given)
