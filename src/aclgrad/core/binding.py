"""From what a caller passes to what a contract judges: one taker per kind of parameter, for all doors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .errors import InvalidArgument, WrongType
from .meta import Meta, Value
from .spec import BoolArray, Flag, Float, Int, Out, OutList, Param, Tensor, TensorList


def taker(param: Param, label: str) -> Callable[[Any], Value]:
    """The function that turns a value passed for this parameter into its `Value`; errors call it `label`."""
    if isinstance(param, TensorList | OutList):
        return lambda value: _take_list(label, value)
    if isinstance(param, Tensor | Out):
        return lambda value: _take_tensor(label, value)
    if isinstance(param, Flag):
        return lambda value: _take_flag(label, value)
    if isinstance(param, Int):
        return lambda value: _take_int(label, value)
    if isinstance(param, Float):
        return lambda value: _take_float(label, value)
    if isinstance(param, BoolArray):
        return lambda value: _take_bools(label, value)
    raise TypeError(f"no taker for {param}")


def _take_tensor(label: str, value: Any) -> Meta | None:
    if isinstance(value, torch.Tensor):
        if value.is_neg():
            raise InvalidArgument(f"{label} is a lazily negated view, expected resolve_neg() of it", label)
        try:
            return Meta(value.shape, value.stride(), value.dtype, value.device)
        except RuntimeError:  # sparse and other layouts have no strides
            raise InvalidArgument(f"{label} has layout {value.layout}, expected strided", label) from None
    if value is None:
        return None
    meta = getattr(value, "meta", None)  # an aclTensor
    if isinstance(meta, Meta):
        return meta
    raise WrongType(f"{label} is {type(value).__name__}, expected a tensor", label)


def _take_list(label: str, value: Any) -> tuple[Meta | None, ...] | None:
    if value is None:
        return None
    if isinstance(value, torch.Tensor) or not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise WrongType(f"{label} is {type(value).__name__}, expected a list of tensors", label)
    return tuple([_take_tensor(f"{label}[{k}]", item) for k, item in enumerate(value)])


def _take_flag(label: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise WrongType(f"{label} is {value!r}, expected a bool", label)


def _take_int(label: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"{label} is {value!r}, expected an int", label) from None
    if not -(2**63) <= number < 2**63:
        raise InvalidArgument(f"{label} is {number}, expected a 64-bit integer", label)
    return number


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
    if not isinstance(value, Sequence) or not all(isinstance(item, bool) for item in value):
        raise WrongType(f"{label} is {value!r}, expected a sequence of bools", label)
    return tuple(value)
