"""Checks of single arguments. Each names the argument, what was found and what was expected."""

from __future__ import annotations

import operator
import os
import reprlib
from enum import IntEnum
from typing import Any, TypeVar

from ...core.errors import InvalidArgument, NullArgument, WrongType

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
UINT32_MAX = 2**32 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1
_PRINTABLE_BITS = 128

EnumT = TypeVar("EnumT", bound=IntEnum)


def shown(value: object) -> str:
    """`value` for a message: short, and safe for objects whose repr is huge, slow or broken."""
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return str(value) if value.bit_length() <= _PRINTABLE_BITS else f"an int of {value.bit_length()} bits"
    if type(value) in (str, bytes):
        return reprlib.repr(value)
    return f"of type {type(value).__name__}"


def as_int(name: str, value: Any) -> int:
    """An int, a member of an IntEnum or a numpy integer; a bool is none of them."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise WrongType(f"{name} is {shown(value)}, expected an integer", name)


def integer(name: str, value: Any, low: int, high: int) -> int:
    """An integer in [low, high]."""
    if type(value) is not int:
        value = as_int(name, value)
    if low <= value <= high:
        return value  # type: ignore[no-any-return]  # as_int made it one
    raise InvalidArgument(f"{name} is {shown(value)}, expected an integer from {low} to {high}", name)


def size_t(name: str, value: Any) -> int:
    """A byte or element count that fits size_t."""
    return integer(name, value, 0, UINT64_MAX)


def address(name: str, value: Any) -> int:
    """A pointer that is not null; null is 0 or None."""
    if value is None:
        raise NullArgument(f"{name} is null, expected an address", name)
    number = integer(name, value, 0, UINT64_MAX)
    if number == 0:
        raise NullArgument(f"{name} is null, expected an address", name)
    return number


def nullable_address(name: str, value: Any) -> int:
    """A pointer, 0 where it is null."""
    return 0 if value is None else integer(name, value, 0, UINT64_MAX)


def member(name: str, value: Any, enum: type[EnumT]) -> EnumT:
    """A number that an enumeration knows."""
    number = value if type(value) is int else as_int(name, value)
    try:
        return enum(number)
    except ValueError:
        known = [f"{item.name} = {item.value}" for item in enum]
        expected = known[0] if len(known) == 1 else f"one of {known[0]} to {known[-1]}"
        raise InvalidArgument(f"{name} is {shown(number)}, expected {expected}", name) from None


def optional_path(name: str, value: Any) -> str | None:
    """A path, or None where it is null or empty."""
    if value is None:
        return None
    try:
        path = os.fsdecode(value)
    except (TypeError, ValueError):
        raise WrongType(f"{name} is {shown(value)}, expected a path or None", name) from None
    return path or None
