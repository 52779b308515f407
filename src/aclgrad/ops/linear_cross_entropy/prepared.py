"""Calls of the head that were checked before: their tensors go into the operator's arguments as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...core.dispatch import is_watched, wants_gradient
from ...core.known import Recognised
from .._shared.autocast import autocast_dtype
from .arguments import Arguments
from .autograd import FOLLOWED_OF, TOGETHER, planned_loss, without_tensors
from .spec_training import together

Placed: TypeAlias = "tuple[int, int, torch.dtype | None]"
"""Of a tensor: where it stands among the operator's arguments, where among the values of a call, and its dtype there if
that is another one."""


class Prepared:
    """The operator's arguments for a call, but for its tensors, and their plan. It keeps none of the tensors."""

    __slots__ = ("_constants", "_follows", "_places", "_plan", "_rows")

    def __init__(self, values: Sequence[Any], arguments: Sequence[Any], places: Sequence[Placed]) -> None:
        self._constants = without_tensors(arguments)
        self._places, self._plan = places, together.plan(arguments)
        self._follows = wants_gradient(FOLLOWED_OF(arguments))
        self._rows = None if values[INPUT].dim() == 2 else tuple(arguments[INPUT].shape)

    def __call__(self, values: Sequence[Any]) -> Tensor:
        """The loss of a call of the same metadata."""
        arguments = self._constants.copy()
        for position, source, dtype in self._places:
            arguments[position] = values[source] if dtype is None else values[source].to(dtype)
        if self._rows is not None:
            arguments[INPUT] = values[INPUT].reshape(self._rows)
            arguments[TARGET] = values[TARGET].reshape(-1)
            if arguments[WEIGHED_BY] is not None:
                arguments[WEIGHED_BY] = arguments[WEIGHED_BY].reshape(-1)
        return planned_loss(self._plan, arguments, self._constants, self._follows)


INPUT, TARGET = 0, 2
"""Where they stand, among the values of a call as among the operator's arguments."""

BIAS, CLASSES, TOKEN_WEIGHT, WEIGHED_BY = 3, 4, 5, TOGETHER.index("token_weight")
"""Where these stand among the values, and the last among the arguments."""

calls: Recognised[Prepared] = Recognised()
"""By what `linear_cross_entropy` is given for one process, and whether gradients are on."""


def known_loss(values: Sequence[Any]) -> Tensor | None:
    """The loss of a call that was checked before, or None: of what `linear_cross_entropy` calls its values."""
    if is_watched():
        return None
    prepared = calls.find(values, torch.is_grad_enabled())
    return None if prepared is None else prepared(values)


def prepare(values: Sequence[Any], given: Arguments, arguments: Sequence[Any]) -> None:
    """Remember a call, if its tensors are the operator's arguments; those of all tokens may be so by another shape."""
    if autocast_dtype(given.input) is not None or values[TARGET].dtype == torch.uint8:
        return
    sources: dict[int, tuple[int, torch.dtype | None]]
    sources = {id(value): (k, None) for k, value in enumerate(values) if isinstance(value, Tensor)}
    if values[INPUT].is_contiguous():
        sources |= {id(given.input): (INPUT, None), id(given.target): (TARGET, None)}
    for k, wide in ((BIAS, given.bias), (CLASSES, given.classes), (TOKEN_WEIGHT, given.token_weight)):
        if wide is not None:
            sources[id(wide)] = (k, None if values[k].dtype == wide.dtype else wide.dtype)
    tensors = [(k, value) for k, value in enumerate(arguments) if isinstance(value, Tensor)]
    if all(id(value) in sources for _, value in tensors):
        places = [(k, *sources[id(value)]) for k, value in tensors]
        calls.keep(Prepared(values, arguments, places), values, torch.is_grad_enabled())
