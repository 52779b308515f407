"""Random legal calls: what somebody could do with an operator, drawn from a seed.

A sample begins as a case or as arguments of random sizes. Then dtypes, layouts, flags and absent tensors are drawn
anew, one by one, and outputs of one's own are given; whatever the contract refuses is left as it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..core.errors import AclgradError
from ..core.memory import tensors_in
from ..core.meta import Meta
from ..core.plan import Operator
from ..core.spec import BoolArray, Flag, InOut, Produced, TensorList
from ..core.spec import Tensor as TensorParam
from .cases import BENCH, BENCH_GPU, REAL, Data, Sizes, TooLarge, sized, suite
from .layouts import LAYOUTS, apply, begun_late

MOST_ELEMENTS = 1 << 16  # of all tensors of a sample
LONG, MANY = {BENCH, BENCH_GPU, REAL}, 8
ODDS_OF_SIZES, ODDS_OF_MIXES, ODDS_OF_LAYOUTS, ODDS_OF_OUTPUTS, ODDS_OF_FLAGS = 0.6, 0.3, 0.5, 0.4, 0.2


@dataclass(frozen=True)
class Sample:
    """The arguments of a call, and the outputs that it is given, if any; `dtype` is what the call began with.

    Where an argument was expanded or left out, the others may no longer be `consistent`, as statistics are with what
    they are of.
    """

    operator: Operator
    dtype: torch.dtype
    args: list[Any]
    out: Any
    consistent: bool

    def plainly(self) -> Sample:
        """The same call with everything contiguous, and outputs of the same dtypes."""
        args = [apply(torch.Tensor.contiguous, arg) for arg in self.args]
        args = [
            apply(torch.Tensor.clone, arg) if k in self.operator.spec.updated else arg for k, arg in enumerate(args)
        ]
        return replace(self, args=args, out=apply(torch.empty_like, apply(torch.Tensor.contiguous, self.out)))

    def __call__(self, backend: str | None = None) -> list[Any]:
        """What the call writes."""
        results = self.operator(*self.args, out=self.out, backend=backend)
        outs = results if isinstance(results, list | tuple) else [results]
        return list(self.operator.spec.written(self.args, outs))


def sample(
    operator: Operator, rng: random.Random, most: int = MOST_ELEMENTS, room: int | None = None, turn: int = 0
) -> Sample:
    """A random call of at most so many elements, on torch's default device: a small one, or with sizes whose product
    fills some of `room`. Another `turn` gives the same call with other values.
    """
    while True:
        try:
            args, dtype = _begun(operator, rng, room, turn, most)
        except TooLarge:  # a weight's two sides may be the same size
            continue
        if sum(tensor.numel() for tensor in tensors_in(args)) <= most and _is_legal(operator, args, None):
            break
    count = len(tensors_in(args))
    changes = [*_mixes(operator, rng), *_options(operator, rng)]
    for position, change in changes:
        changed = [change(value) if k == position else value for k, value in enumerate(args)]
        if _is_legal(operator, changed, None):
            args = changed
    plain = args
    kept = len(tensors_in(args)) == count
    args = [_laid_out(param, value, rng) for param, value in zip(operator.spec.args, args, strict=True)]
    pairs = zip(tensors_in(plain), tensors_in(args), strict=True)
    expanded = any(0 in new.stride() and 0 not in old.stride() for old, new in pairs)
    return Sample(operator, dtype, args, _out(operator, args, rng), kept and not expanded)


def _begun(
    operator: Operator, rng: random.Random, room: int | None, turn: int, most: int
) -> tuple[list[Any], torch.dtype]:
    """A case, or arguments of random sizes."""
    cases = [case for case in suite(operator.spec).cases if not case.tags & LONG]
    case, build = rng.choice(cases), sized(operator.spec)
    dtype, seed = rng.choice(case.dtypes), rng.randrange(1 << 30) + turn
    if build is None or rng.random() > ODDS_OF_SIZES:
        return case.build(dtype, seed), dtype
    sizes, options = Sizes.of(build).draw(rng, room)
    return list(build(*sizes, **options)(Data(dtype, seed, most))), dtype


Change = tuple[int, Callable[[Any], Any]]


def _mixes(operator: Operator, rng: random.Random) -> list[Change]:
    """Other dtypes for single tensors."""
    if rng.random() < 0.5:  # every second call has its tensors in the dtypes they came in
        return []
    return [
        (k, _in(rng.choice((*param.dtypes, *param.generous))))
        for k, param in enumerate(operator.spec.args)
        if isinstance(param, TensorParam) and not isinstance(param, TensorList) and rng.random() < 2 * ODDS_OF_MIXES
    ]


def _in(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda value: None if value is None else value.to(dtype)


def _options(operator: Operator, rng: random.Random) -> list[Change]:
    """Flags turned round, tensors left out."""
    found: list[Change] = []
    for k, param in enumerate(operator.spec.args):
        if rng.random() > ODDS_OF_FLAGS:
            continue
        if isinstance(param, Flag):
            found.append((k, lambda value: not value))
        elif isinstance(param, BoolArray):
            mask = [rng.random() < 0.5 for _ in operator.spec.outs]
            found.append((k, partial(_instead, mask)))
        elif param.may_be_none:
            found.append((k, partial(_instead, None)))
    return found


def _instead(of: Any, value: Any) -> Any:  # noqa: ARG001
    return of


def _is_legal(operator: Operator, args: Sequence[Any], outs: Sequence[Any] | None) -> bool:
    try:
        operator.judge(args, outs)
    except (AclgradError, AttributeError, IndexError, TypeError):  # a contract may stumble over what is not there
        return False
    return True


def _laid_out(param: Any, value: Any, rng: random.Random) -> Any:
    """The value in another layout; what is only read may also be expanded."""
    if rng.random() > ODDS_OF_LAYOUTS:
        return apply(torch.Tensor.clone, value)
    layouts = [*LAYOUTS.values(), begun_late, *([] if isinstance(param, InOut) else [lambda t: _expanded(t, rng)])]
    return apply(rng.choice(layouts), value)


def _expanded(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """One slice of a floating-point tensor in place of all."""
    if not tensor.numel() or not tensor.dim() or not tensor.is_floating_point():
        return tensor.clone()
    dim = rng.randrange(tensor.dim())
    return tensor.select(dim, 0).unsqueeze(dim).expand_as(tensor)


def _out(operator: Operator, args: Sequence[Any], rng: random.Random) -> Any:
    """Outputs to write to, some of other dtypes and layouts; None for fresh ones."""
    if not operator.spec.outs or rng.random() > ODDS_OF_OUTPUTS:
        return None
    _, metas = operator.judge(args)
    outs: list[Any] = [_like(meta, None, rng) for meta in metas]
    for k, (param, meta) in enumerate(zip(operator.spec.outs, metas, strict=True)):
        if isinstance(meta, Meta) and isinstance(param, Produced):
            changed = [*outs]
            changed[k] = _like(meta, rng.choice((*param.dtypes, *param.generous)), rng)
            outs = changed if _is_legal(operator, args, changed) else outs
    return outs[0] if len(outs) == 1 else tuple(outs)


def _like(meta: Any, dtype: torch.dtype | None, rng: random.Random) -> Any:
    """Memory for an output."""
    if meta is None:
        return None
    if not isinstance(meta, Meta):
        return [_like(member, dtype, rng) for member in meta]
    plain = torch.empty_strided(meta.shape, meta.strides, dtype=dtype or meta.dtype)
    layouts: list[Callable[..., Any]] = [torch.Tensor.clone, begun_late, *LAYOUTS.values()]
    laid_out: torch.Tensor = rng.choice(layouts)(plain) if rng.random() < ODDS_OF_LAYOUTS else plain
    return laid_out
