"""Named inputs of the operators for one shard: some targets are in it, others elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import F32
from ...testing.cases import EDGE, SMOKE, Case, Data, Invalid, Suite
from .cases_training import DTYPES, wide_of
from .spec_shards import SLOPES

BENT = (4.0, 0.7)
"""softcap and logit_scale where there are options."""

Make = Callable[[Data], Sequence[Any]]


def _shard(tokens: int, hidden: int, rows: int, *, every: bool, int32: bool = False) -> Make:
    """Input, weight, rows of targets, of which a half is here; then the options, all or none."""

    def make(data: Data) -> Sequence[Any]:
        wide = wide_of(data.dtype)
        x, w = data.normal(tokens, hidden), data.normal(rows, hidden, scale=hidden**-0.5 if hidden else 1)
        row = data.integers(-rows // 2, rows + rows // 2 + 1, tokens)
        bias, classes = data.normal(rows, dtype=wide), data.uniform(0.5, 1.5, rows, dtype=wide)
        options = (bias, classes, *BENT) if every else (None, None, 0.0, 1.0)
        return x, w, row.int() if int32 else row, *options

    return make


def _statistics(*sizes: int, every: bool = False, **rest: Any) -> Make:
    shard = _shard(*sizes, every=every, **rest)
    return lambda data: (*shard(data), every, every)


def _gradients(*sizes: int, every: bool = False, wants: tuple[bool, bool, bool] | None = None, **rest: Any) -> Make:
    shard = _shard(*sizes, every=every, **rest)

    def make(data: Data) -> Sequence[Any]:
        tokens, wide = sizes[0], wide_of(data.dtype)
        x, w, row, *options = shard(data)
        top, total = data.uniform(2.0, 4.0, tokens, dtype=wide), data.uniform(1.0, 50.0, tokens, dtype=wide)
        alpha, own_slope, beta, delta = (data.normal(tokens, dtype=wide) for _ in SLOPES)
        beside = (beta, delta) if every else (None, None)
        return x, w, row, top, total, alpha, own_slope, *beside, *options, *(wants or (True, True, every))

    return make


def _cases(make: Callable[..., Make]) -> tuple[Case, ...]:
    """The shapes and options that both operators take."""
    return (
        Case("shard", make(19, 24, 131), DTYPES, frozenset({SMOKE})),
        Case("every_option", make(19, 24, 131, every=True), DTYPES, frozenset({SMOKE})),
        Case("no_rows", make(19, 8, 0, every=True), DTYPES[:1], frozenset({EDGE})),
        Case("one_row", make(19, 5, 1, every=True), DTYPES[:1], frozenset({EDGE})),
        Case("no_tokens", make(0, 8, 128), DTYPES[:1], frozenset({EDGE})),
        Case("no_features", make(9, 0, 128, every=True), DTYPES[:1], frozenset({EDGE})),
        Case("several_threads", make(130, 65, 1030, every=True), DTYPES[:1], frozenset({EDGE})),
        Case("several_tiles", make(20, 8, 600, every=True), DTYPES[:1], frozenset({EDGE})),
    )


_VECTORS = ("top", "total", *SLOPES)
_INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("input", "weight", "row")),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    Invalid("weight_of_another_dtype", {"weight": lambda t: t.half()}, InvalidArgument, "weight"),
    Invalid("row_float", {"row": lambda t: t.float()}, InvalidArgument, "row"),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in ("input", "weight", "row")),
    Invalid("weight_features", {"weight": lambda t: t[:, :-1]}, InvalidArgument, "weight"),
    Invalid("row_length", {"row": lambda t: t[:-1]}, InvalidArgument, "row"),
    *(
        Invalid(f"{name}_{wrong}", {name: lambda _, change=change: change(Data().normal(131))}, InvalidArgument, name)
        for name in ("bias", "class_weight")
        for wrong, change in {"half": lambda t: t.half(), "length": lambda t: t[1:]}.items()
    ),
    Invalid("classes_alone", {"class_weight": lambda _: Data().normal(131)}, InvalidArgument, "class_weight"),
    Invalid("softcap_negative", {"softcap": -1.0}, InvalidArgument, "softcap"),
    Invalid("logit_scale_nan", {"logit_scale": math.nan}, InvalidArgument, "logit_scale"),
)
_OF_TOKENS = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in (*_VECTORS[:3], "own_slope")),
    *(Invalid(f"{name}_half", {name: lambda _: Data().normal(19).half()}, InvalidArgument, name) for name in _VECTORS),
    *(Invalid(f"{name}_length", {name: lambda _: Data().normal(18)}, InvalidArgument, name) for name in _VECTORS),
)
_ALONE = {"input": (True, False, False), "weight": (False, True, False), "bias": (False, False, True)}

SIZED = {
    "shard_statistics": lambda BT, H, V, *, options=False: _statistics(BT, H, V, every=options),
    "shard_gradients": lambda BT, H, V, *, options=False: _gradients(BT, H, V, every=options),
}

SUITES = {
    "shard_statistics": Suite(
        (*_cases(_statistics), Case("int32", _statistics(8, 8, 40, int32=True), DTYPES[:1], frozenset({EDGE}))),
        _INVALID,
    ),
    "shard_gradients": Suite(
        (
            *_cases(_gradients),
            *(
                Case(f"{name}_grad_alone", _gradients(19, 24, 131, every=True, wants=wants), (F32,),
                     frozenset({EDGE}))
                for name, wants in _ALONE.items()
            ),
        ),
        (*_INVALID, *_OF_TOKENS),
    ),
}  # fmt: skip
