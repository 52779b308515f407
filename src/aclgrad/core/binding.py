"""From what a caller passes to what a contract judges: one way per kind of parameter, for all doors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .dispatch import keys_of
from .errors import InvalidArgument, WrongType
from .meta import Meta, Value, meta_of
from .spec import BoolArray, Flag, Float, Int, Out, OutList, Param, Tensor, TensorList


def fingerprint(values: Sequence[Any]) -> tuple[Any, ...]:
    """All that a plan may depend on, as a dictionary key made in a fraction of a microsecond a value.

    Equal fingerprints take equally, so a cached plan stands for a validated call.
    """
    key: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            try:
                key.append((value.shape, value.stride(), value.dtype, value.device, keys_of(value)))
            except RuntimeError:  # compressed and nested tensors have no strides; `take` refuses them
                key.append(keys_of(value))
        elif isinstance(value, list | tuple):
            key.append(fingerprint(value))
        else:
            key.append(getattr(value, "meta", (type(value), value)))
    return tuple(key)


def take(param: Param, label: str, value: Any) -> Value:
    """The `Value` of what was passed for a parameter; errors call it `label`."""
    for kinds, taker in _TAKERS:
        if isinstance(param, kinds):
            return taker(label, value)
    raise TypeError(f"no taker for {param}")


def require_strided(label: str, tensor: torch.Tensor) -> None:
    """Raise unless a tensor's elements lie at strides: it is not sparse, of no library's own layout, not nested."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        found = "is a nested tensor" if tensor.is_nested else f"has layout {tensor.layout}"
        raise InvalidArgument(f"{label} {found}, expected strided", label)


def integer(label: str, value: Any) -> int:
    """What was passed as an integer of 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"{label} is {value!r}, expected an int", label) from None
    if not -(2**63) <= number < 2**63:
        raise InvalidArgument(f"{label} is {number}, expected a 64-bit integer", label)
    return number


def _take_tensor(label: str, value: Any) -> Meta | None:
    if isinstance(value, torch.Tensor):
        require_strided(label, value)
        return meta_of(value)
    if value is None:
        return None
    meta = getattr(value, "meta", None)  # an aclTensor
    if isinstance(meta, Meta):
        return meta
    raise WrongType(f"{label} is {type(value).__name__}, expected a tensor", label)


def _take_list(label: str, value: Any) -> tuple[Meta | None, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise WrongType(f"{label} is {type(value).__name__}, expected a list of tensors", label)
    return tuple([_take_tensor(f"{label}[{k}]", item) for k, item in enumerate(value)])


def _take_flag(label: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise WrongType(f"{label} is {value!r}, expected a bool", label)


def _take_int(label: str, value: Any) -> int:
    if isinstance(value, torch.Tensor):  # plans are found by its metadata
        raise WrongType(f"{label} is {value!r}, expected an int", label)
    return integer(label, value)


def _take_float(label: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        return number if number == number else math.nan
    raise WrongType(f"{label} is {value!r}, expected a float", label)


def _take_bools(label: str, value: Any) -> tuple[bool, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(item, bool) for item in value):
        raise WrongType(f"{label} is {value!r}, expected a sequence of bools", label)
    return tuple(value)


_TAKERS: tuple[tuple[tuple[type[Param], ...], Callable[[str, Any], Value]], ...] = (
    ((TensorList, OutList), _take_list),
    ((Tensor, Out), _take_tensor),
    ((Flag,), _take_flag),
    ((Int,), _take_int),
    ((Float,), _take_float),
    ((BoolArray,), _take_bools),
)
