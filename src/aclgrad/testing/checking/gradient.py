"""Anyone's kernel judged by an operator's contract: the conformance suite as a service."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...core.errors import InvalidArgument
from ...core.meta import dtype_name
from ...core.plan import Operator
from ...core.registry import find
from ..cases import EDGE, SMOKE, is_documented, sized, suite
from ..data.calls import drawn
from ..layouts import apply
from ..precision.kinds import RULE
from ..precision.standards import LEVELS, Asked, asked
from ..report.model import Report
from .checks import BORDERS, CHECKS, NUMBERS, RANDOM, Trial, numbers, scattered, unable
from .subjects import Sizes, Subject, subjects

NAMES = (NUMBERS, BORDERS, RANDOM, *CHECKS)
"""Every check."""


def check_gradient(
    fn: Callable[..., Any] | Mapping[torch.dtype, Callable[..., Any]],
    op: Operator | Callable[..., Any] | str,
    *,
    dtypes: Collection[torch.dtype] | None = None,
    cases: Collection[str] | None = None,
    without: Collection[str] = (),
    samples: int = 4,
    seed: int = 0,
    sizes: Sizes | None = None,
    device: str | torch.device = "cpu",
    standard: str = RULE,
    level: str = LEVELS[0],
    tell: Callable[[str], object] | None = None,
) -> Report:
    """Try somebody's kernel as the package's own are tried, and judge it by the operator's contract.

    `fn` takes the arguments in the document's order, with the shapes that the operator's documentation gives, and
    returns the outputs, of torch or numpy. It is a function or an op of torch's; with a keyword `out` it is also given
    memory. A C function (of `ctypes`) gets addresses and what `sizes(*args)` returns. A mapping has a function for
    each dtype.

    Looked at are numbers (the operator's named cases), borders (empty, one element, Inf and NaN, one past a block),
    random calls (`samples` for each dtype, from a seed), inputs left alone, determinism, layouts, outputs written in
    full, memory out of bounds and aliasing. `without` names checks to leave out, `cases` the only ones to take.

    The result shows itself and is written like that of `verify`.

    >>> import torch
    >>> def gradient(grad_output, x):
    ...     return torch.where((x > -3) & (x < 3), grad_output / 6, 0)
    >>> check_gradient(gradient, "hardsigmoid_backward", dtypes=[torch.float32]).ok
    True
    >>> def gradient(grad_output, x):
    ...     return grad_output / 6 * ((x > -3) & (x < 3))
    >>> found = check_gradient(gradient, "hardsigmoid_backward", dtypes=[torch.float32]).wrong[0]
    >>> found.check, found.name, found.outputs[0].found.misplaced  # infinity times 0 is NaN
    ('borders', 'kinks float32', 30)
    """
    operator = op if isinstance(op, Operator) else find(op if isinstance(op, str) else op.__name__)
    wanted = asked(standard, level)
    for name in without:
        if name not in NAMES:
            raise InvalidArgument(f"without has {name!r}, expected some of {', '.join(NAMES)}", "without")
    known = _dtypes(operator)
    if unknown := [dtype for dtype in dtypes or () if dtype not in known]:
        raise InvalidArgument(
            f"dtypes has {dtype_name(unknown[0])}, expected some of {', '.join(map(dtype_name, known))}", "dtypes"
        )
    table = subjects(fn, operator, sizes, [dtype for dtype in known if dtypes is None or dtype in dtypes])
    one = next(iter(table.values()))
    report = Report(operator.spec.name, operator.spec.aclnn, standard, level)
    reasons = {name: "not wanted" if name in without else unable(name, operator, one) for name in NAMES}
    report.left_out = {name: why for name, why in reasons.items() if why is not None}
    with torch.device(device):
        for trial in _trials(operator, table, cases, samples, seed, wanted):
            if tell is not None:
                tell(trial.name)
            if trial.kind not in report.left_out:
                report.calls += numbers(trial)
            for name, check in CHECKS.items() if trial.thorough else ():
                if name not in report.left_out:
                    report.calls += check(trial)
    tried = {check for check, _, _ in report.tally}
    report.left_out |= {name: "there was nothing to try" for name in NAMES if name not in {*tried, *report.left_out}}
    return report


def _dtypes(operator: Operator) -> list[torch.dtype]:
    """Those that a document knows; for an operator without one, all."""
    found = [
        dtype
        for case in suite(operator.spec).cases
        for dtype in case.dtypes
        if not operator.spec.aclnn or is_documented(operator.spec, case, dtype)
    ]
    return list(dict.fromkeys(found))


def _trials(
    operator: Operator,
    table: Mapping[torch.dtype, Subject],
    chosen: Collection[str] | None,
    samples: int,
    seed: int,
    asked: Asked,
) -> Iterator[Trial]:
    known = [case for case in suite(operator.spec).cases if case.tags & {SMOKE, EDGE}]
    if unknown := [name for name in chosen or () if name not in {case.name for case in known}]:
        names = ", ".join(case.name for case in known)
        raise InvalidArgument(f"{operator.spec.name} has no case {unknown[0]!r}, expected some of {names}", "cases")
    for case in known:
        if chosen is None or case.name in chosen:
            for dtype, subject in table.items():
                if dtype in case.dtypes:
                    smoke = SMOKE in case.tags
                    name = f"{case.name} {dtype_name(dtype)}"
                    args = case.build(dtype, seed)
                    if not subject.takes_strides:
                        args = [apply(torch.Tensor.contiguous, arg) for arg in args]
                    yield Trial(operator, subject, name, NUMBERS if smoke else BORDERS, args, asked, smoke)
    if chosen is not None or sized(operator.spec) is None:
        return
    drawable = suite(operator.spec).cases[0].dtypes
    for dtype, subject in table.items():
        for call in drawn(operator, samples, dtype, seed) if dtype in drawable else ():
            dice = random.Random(f"{seed}/{call.name}")  # noqa: S311  of tests
            trial = Trial(operator, subject, _drawn_name(call.origin), RANDOM, call.args, asked, thorough=False)
            yield replace(trial, args=scattered(call.args, dice)) if subject.takes_strides else trial


def _drawn_name(origin: Mapping[str, Any]) -> str:
    """A random call in words."""
    sizes = {f"{name}": size for name, size in origin["sizes"].items()}
    told = [f"{name}={'×'.join(map(str, v)) if isinstance(v, list) else v}" for name, v in sizes.items()]
    told += [name if on is True else f"{name}={on}" for name, on in origin["options"].items() if on is not False]
    return f"{' '.join(told)} {origin['dtype']}"
