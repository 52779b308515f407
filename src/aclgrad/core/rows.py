"""Plans that differ only in how many rows some tensors have, made from each other.

Packed sequences have another number of rows in nearly every batch. What a launch does with them follows from a rounded
number, so most batches find a plan of which only the shapes are to be changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .binding import fingerprint
from .dispatch import keys_of
from .known import Known
from .meta import Meta
from .spec import OpSpec

if TYPE_CHECKING:
    from .plan import Plan

_WITHOUT_ROWS = (AttributeError, IndexError, RuntimeError, TypeError)
"""What asking a value for its rows raises where it has none, or what cannot be hashed."""


def rounded_rows(count: int) -> int:
    """The number rounded up by less than a quarter, so that there are four in an octave.

    >>> [rounded_rows(count) for count in (5, 9, 100, 1000, 1025)]
    [5, 10, 112, 1024, 1280]
    """
    step = 1 << max((count - 1).bit_length() - 3, 0) if count > 0 else 1
    return -(-count // step) * step


class RowPlans(Known["Plan"]):
    """The plans of an operator whose contract names `rows`: calls may have a plan that differs from theirs in these."""

    def __init__(self, spec: OpSpec) -> None:
        super().__init__()
        self._spec = spec
        self._places = [k for k, arg in enumerate(spec.args) if arg.name in spec.rows]
        self._others = [k for k, arg in enumerate(spec.args) if arg.name not in spec.rows]
        self._alike: dict[Any, Plan] = {}  # by all that a launch depends on

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._alike.clear()

    def find(self, values: Sequence[Any], *beside: Any) -> Plan | None:
        """What was kept for a call of these arguments, or made of what was kept for another number of rows."""
        plan = self._newest.find(values, *beside)
        if plan is not None:
            return plan
        try:
            key, count = self._key(values, beside)
            kept = self._made.get((key, count))
            alike = self._alike.get(key)
        except _WITHOUT_ROWS:
            return super().find(values, *beside)
        if kept is not None:
            return self._missed(kept, values, *beside)
        if alike is None:
            return None
        plan = self._with_rows(alike, count)
        self._put((key, count), plan)
        return plan

    def keep(self, made: Plan, values: Sequence[Any], *beside: Any) -> None:
        """Remember a plan, for calls with other numbers of rows, too."""
        try:
            key, count = self._key(values, beside)
            hash(key)
        except _WITHOUT_ROWS:
            super().keep(made, values, *beside)
        else:
            self._put((key, count), made)
            self._alike[key] = made

    def _key(self, values: Sequence[Any], beside: Any) -> tuple[Any, int]:
        """Equal for calls that may share a launch; and the number of rows. An error where there is no such number."""
        if len(values) != len(self._spec.args):
            raise TypeError("outputs are given")
        count: int = values[self._places[0]].shape[0]
        rows = tuple([_but_for_rows(values[k], count) for k in self._places])
        return (rows, fingerprint([values[k] for k in self._others]), rounded_rows(count), beside), count

    def _with_rows(self, plan: Plan, count: int) -> Plan:
        """The plan for another number of rows."""
        spec, call = self._spec, plan.call
        values = {name: _resized(v, count) if name in spec.rows else v for name, v in call.values.items()}
        outs = tuple([values[name] for name in spec.out_names])
        return type(plan)(replace(call, values=values, _dims=[]), outs, plan.backend, plan.launch)


def _but_for_rows(value: Any, count: int) -> Any:
    """What a plan depends on of a tensor with so many rows, or of a list of them."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return tuple([_but_for_rows(member, count) for member in value])
    if value.shape[0] != count or not isinstance(value, torch.Tensor):
        raise TypeError("another number of rows")
    return (value.shape[1:], value.stride(), value.dtype, value.device, keys_of(value))


def _resized(value: Any, count: int) -> Any:
    """Metadata with so many rows."""
    if isinstance(value, Meta):
        return value._replace(shape=(count, *value.shape[1:]))
    return None if value is None else tuple([_resized(member, count) for member in value])
