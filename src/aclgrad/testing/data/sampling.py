"""Calls of an operator to compute golden data for: a named case, or sizes and options drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ..cases import Case, Data, Sizes, is_documented, sized, suite

LARGEST = 48  # a size that is drawn; sizes are as often below 7 as above
RANKS = (2, 4)  # of a shape; every operator takes these
TRIES = 100


@dataclass(frozen=True)
class Sample:
    """A call: its arguments in the contract's order, and where they come from."""

    name: str
    origin: dict[str, Any]
    args: list[Any]


def of_case(operator: Operator, name: str | None, dtype: torch.dtype | None, seed: int = 0) -> Sample:
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
    return Sample(case.name, origin, case.build(chosen, seed))


def _dtype(operator: Operator, case: Case, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None and dtype not in case.dtypes:
        known = ", ".join(map(dtype_name, case.dtypes))
        raise InvalidArgument(
            f"case {case.name} of {operator.spec.name} is not for {dtype_name(dtype)}, expected {known}", "dtype"
        )
    return dtype or case.dtypes[0]


def drawn(operator: Operator, count: int, dtype: torch.dtype | None, seed: int = 0) -> Iterator[Sample]:
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
) -> Sample:
    first, known = suite(operator.spec).cases[0], Sizes.of(build)
    documented = [kind for kind in first.dtypes if is_documented(operator.spec, first, kind)]
    for _ in range(TRIES):
        chosen = _dtype(operator, first, dtype or dice.choice(documented or first.dtypes))
        sizes, options = _draw(known, dice)
        args = list(build(*sizes.values(), **options)(Data(chosen, seed)))
        try:
            operator.judge(args)
        except (InvalidArgument, NullArgument):  # sizes or options that do not go together
            continue
        told = {"shape": list(sizes.values())} if known.is_shape else sizes
        origin = {"sizes": told, "options": options, "dtype": dtype_name(chosen), "seed": seed}
        return Sample(name, origin, args)
    raise InvalidArgument(f"no legal call of {operator.spec.name} was drawn in {TRIES} tries", "random")


def _draw(known: Sizes, dice: random.Random) -> tuple[dict[str, int], dict[str, Any]]:
    def size() -> int:
        return round(math.pow(LARGEST, dice.random()))

    if known.is_shape:
        sizes = {f"dimension {d}": size() for d in range(dice.randint(*RANKS))}
    else:
        sizes = {name: size() for name in known.sizes}
    options: dict[str, Any] = {}
    for name, default in known.options.items():
        if isinstance(default, bool):
            options[name] = dice.random() < 0.5
        elif isinstance(default, int):
            options[name] = dice.randint(default, default + 1)
    return sizes, options
