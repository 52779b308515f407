"""Named inputs of the operators for training, which no document knows: a whole vocabulary, some tokens ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import EDGE, SMOKE, Case, Data, Invalid, Suite, bytes_moved
from .reference import token_losses
from .training import IGNORE_INDEX, STATISTICS

DTYPES = (BF16, F16, F32, F64)
MATRICES = ("input", "weight")
GRADIENTS = ("input_grad", "weight_grad")


def _head(
    tokens: int, hidden: int, rows: int, *rest: Any, index: torch.dtype = torch.int64, scale: float = 1.0,
    ignored: float = 0.2, ignore_index: int = IGNORE_INDEX,
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """Input, weight, targets of which a share is ignored, what is ignored, and the arguments that follow."""

    def make(data: Data) -> Sequence[Any]:
        x = data.normal(tokens, hidden, scale=scale)
        w = data.normal(rows, hidden, scale=hidden**-0.5 if hidden else 1)
        target = data.integers(0, rows, tokens, dtype=index)
        target[data.flags(tokens, share=ignored)] = ignore_index
        return x, w, target, ignore_index, *rest

    return make


def _cases(*rest: Any) -> tuple[Case, ...]:
    """The shapes that both operators of the forward pass take."""
    return (
        Case("head", _head(19, 24, 131, *rest), DTYPES, frozenset({SMOKE})),
        Case("int32", _head(21, 8, 129, *rest, index=torch.int32), DTYPES, frozenset({SMOKE})),
        Case("a_class_ignored", _head(16, 16, 64, *rest, ignore_index=7), DTYPES, frozenset({EDGE})),
        Case("none_ignored", _head(17, 9, 130, *rest, ignored=0.0), DTYPES, frozenset({EDGE})),
        Case("one_token", _head(1, 33, 128, *rest, ignored=0.0), DTYPES, frozenset({EDGE})),
        Case("one_feature", _head(40, 1, 257, *rest), DTYPES, frozenset({EDGE})),
        Case("one_class", _head(9, 5, 1, *rest), DTYPES, frozenset({EDGE})),
        Case("past_every_block", _head(130, 65, 1030, *rest), DTYPES, frozenset({EDGE})),
        Case("peaked", _head(24, 32, 200, *rest, scale=6.0), DTYPES, frozenset({EDGE})),
        Case("no_features", _head(9, 0, 128, *rest), DTYPES, frozenset({EDGE})),
    )


_MEAN, _BOTH = (True,), (True, True)
TOGETHER = (
    *_cases(*_MEAN, *_BOTH),
    Case("sum", _head(19, 24, 131, False, *_BOTH), DTYPES, frozenset({SMOKE})),
    Case("input_grad_alone", _head(19, 24, 131, *_MEAN, True, False), DTYPES, frozenset({EDGE})),
    Case("weight_grad_alone", _head(19, 24, 131, *_MEAN, False, True), DTYPES, frozenset({EDGE})),
    Case("no_tokens", _head(0, 8, 128, *_MEAN, *_BOTH), DTYPES, frozenset({EDGE})),
    Case("no_tokens_sum", _head(0, 8, 128, False, *_BOTH), DTYPES, frozenset({EDGE})),
)
LOSSES = (*_cases(), Case("no_tokens", _head(0, 8, 128), DTYPES, frozenset({EDGE})))


def _backward(forward: Callable[[Data], Sequence[Any]], *wants: bool) -> Callable[[Data], Sequence[Any]]:
    """The gradient of every token's loss, what the forward pass took, and the statistics that belong to it."""

    def make(data: Data) -> Sequence[Any]:
        x, w, target, ignored = forward(data)
        wide = F64 if data.dtype == F64 else F32
        _, *statistics = token_losses(x.to(wide), w.to(wide), target, ignored)
        return data.normal(len(target), dtype=wide), x, w, target, ignored, *statistics, *wants

    return make


GRADIENT = (
    *(Case(case.name, _backward(case.make, True, True), case.dtypes, case.tags) for case in LOSSES),
    Case("input_grad_alone", _backward(_head(19, 24, 131), True, False), DTYPES, frozenset({EDGE})),
    Case("weight_grad_alone", _backward(_head(19, 24, 131), False, True), DTYPES, frozenset({EDGE})),
)

_INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in (*MATRICES, "target")),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    Invalid("weight_of_another_dtype", {"weight": lambda t: t.half()}, InvalidArgument, "weight"),
    Invalid("target_int16", {"target": lambda t: t.short()}, InvalidArgument, "target"),
    Invalid("target_float", {"target": lambda t: t.float()}, InvalidArgument, "target"),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in (*MATRICES, "target")),
    Invalid("no_vocabulary", {"weight": lambda t: t[:0]}, InvalidArgument, "weight"),
    Invalid("weight_features", {"weight": lambda t: t[:, :-1]}, InvalidArgument, "weight"),
    Invalid("target_length", {"target": lambda t: t[:-1]}, InvalidArgument, "target"),
)
_TARGETS = (
    Invalid("target_too_large", {"target": lambda t: torch.full_like(t, 131)}, InvalidArgument, "target"),
    Invalid("target_negative", {"target": lambda t: torch.full_like(t, -1)}, InvalidArgument, "target"),
)
_UPSTREAM = ("grad", *STATISTICS)
_OF_TOKENS = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in _UPSTREAM),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in _UPSTREAM),
    *(Invalid(f"{name}_length", {name: lambda t: t[:-1]}, InvalidArgument, name) for name in _UPSTREAM),
)


def _matrix(*shape: int, factor: float | None = None) -> Callable[[Data], Sequence[Any]]:
    """A matrix and a factor in the dtype of sums."""

    def make(data: Data) -> Sequence[Any]:
        wide = F64 if data.dtype == F64 else F32
        return data.normal(*shape), data.normal(dtype=wide) if factor is None else torch.tensor(factor, dtype=wide)

    return make


SCALED = (
    Case("matrix", _matrix(19, 24), DTYPES, frozenset({SMOKE})),
    Case("by_one", _matrix(19, 24, factor=1.0), DTYPES, frozenset({EDGE})),
    Case("by_zero", _matrix(5, 7, factor=0.0), DTYPES, frozenset({EDGE})),
    Case("past_every_block", _matrix(130, 1030), DTYPES, frozenset({EDGE})),
    Case("one_element", _matrix(1, 1), DTYPES, frozenset({EDGE})),
    Case("nothing", _matrix(0, 8), DTYPES, frozenset({EDGE})),
)
SCALED_INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("x", "factor")),
    *(Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name) for name in ("x", "factor")),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in ("x", "factor")),
)


def _in_place(args: Sequence[Any], outs: Sequence[Any]) -> int:  # noqa: ARG001  there are none
    """What is read is written."""
    return bytes_moved(args, args[:1])


SUITES = {
    "loss_and_gradients": Suite(TOGETHER, (*_INVALID, *_TARGETS)),
    "token_losses": Suite(LOSSES, (*_INVALID, *_TARGETS)),
    "token_gradients": Suite(GRADIENT, (*_INVALID, *_OF_TOKENS)),
    "scale_": Suite(SCALED, SCALED_INVALID, main="x", moved=_in_place),
}
