"""Calls of an operator to compute golden data for: a named case, or sizes and options drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ..cases import Case, Data, Sizes, is_documented, sized, suite

TRIES = 100


@dataclass(frozen=True)
class Call:
    """A call: its arguments in the contract's order, and where they come from."""

    name: str
    origin: dict[str, Any]
    args: list[Any]


def of_case(operator: Operator, name: str | None, dtype: torch.dtype | None, seed: int = 0) -> Call:
    """A named case of the operator in one of its dtypes; the first one without a name.

    >>> from aclgrad.core.registry import lookup
    >>> of_case(lookup("hardsigmoid_backward"), "ragged_tail", torch.float16).args[0].shape
    torch.Size([1025])
    """
    cases = {case.name: case for case in suite(operator.spec).cases}
    case = next(iter(cases.values())) if name is None else cases.get(name)
    if case is None:
        raise InvalidArgument(f"{operator.spec.name} has no case {name!r}, expected one of {', '.join(cases)}", "case")
    chosen = _dtype(operator, case, dtype)
    origin = {"case": case.name, "dtype": dtype_name(chosen), "seed": seed}
    return Call(case.name, origin, case.build(chosen, seed))


def _dtype(operator: Operator, case: Case, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None and dtype not in case.dtypes:
        known = ", ".join(map(dtype_name, case.dtypes))
        raise InvalidArgument(
            f"case {case.name} of {operator.spec.name} is not for {dtype_name(dtype)}, expected {known}", "dtype"
        )
    return dtype or case.dtypes[0]


def drawn(operator: Operator, count: int, dtype: torch.dtype | None, seed: int = 0) -> Iterator[Call]:
    """Calls with sizes, options and (without a dtype) dtypes drawn from a seed; the same seed gives the same calls."""
    build = sized(operator.spec)
    if build is None:
        raise InvalidArgument(f"{operator.spec.name} cannot be drawn: its family's cases have no SIZED", "random")
    width = len(str(count - 1))
    for k in range(count):
        dice = random.Random(f"{seed}/{k}")  # noqa: S311  of tests, not of secrets
        yield _drawn(operator, build, dice, dtype, seed + k, f"{k:0{width}}")


def _drawn(
    operator: Operator, build: Any, dice: random.Random, dtype: torch.dtype | None, seed: int, name: str
) -> Call:
    first, known = suite(operator.spec).cases[0], Sizes.of(build)
    documented = [kind for kind in first.dtypes if is_documented(operator.spec, first, kind)]
    for _ in range(TRIES):
        chosen = _dtype(operator, first, dtype or dice.choice(documented or first.dtypes))
        sizes, options = known.draw(dice)
        args = list(build(*sizes, **options)(Data(chosen, seed)))
        try:
            operator.judge(args)
        except (InvalidArgument, NullArgument):  # sizes or options that do not go together
            continue
        told = {"shape": sizes} if known.is_shape else dict(zip(known.sizes, sizes, strict=True))
        origin = {"sizes": told, "options": options, "dtype": dtype_name(chosen), "seed": seed}
        return Call(name, origin, args)
    raise InvalidArgument(f"no legal call of {operator.spec.name} was drawn in {TRIES} tries", "random")
