"""Named inputs of the operators for training, which no document knows: a whole vocabulary, some tokens ignored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import EDGE, SMOKE, Case, Data, Invalid, Suite, bytes_moved
from .reference import token_losses
from .spec_training import IGNORE_INDEX, OPTIONS, PULLS, STATISTICS

DTYPES = (BF16, F16, F32, F64)
MATRICES = ("input", "weight")
OF_CLASSES, NUMBERS = OPTIONS[:2], OPTIONS[2:]


class Options(NamedTuple):
    """Options of the loss, as the operators take them; tensors are drawn where their flag is set."""

    bias: bool = False
    class_weight: bool = False
    label_smoothing: float = 0.0
    softcap: float = 0.0
    logit_scale: float = 1.0
    z_loss: float = 0.0

    def draw(self, data: Data, rows: int) -> Sequence[Any]:
        """The arguments."""
        wide = wide_of(data.dtype)
        bias = data.normal(rows, dtype=wide) if self.bias else None
        classes = data.uniform(0.5, 1.5, rows, dtype=wide) if self.class_weight else None
        return bias, classes, *self[2:]


PLAIN, EVERY = Options(), Options(True, True, 0.1, 4.0, 0.7, 0.02)


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums."""
    return F64 if dtype == F64 else F32


def _head(
    tokens: int, hidden: int, rows: int, *, index: torch.dtype = torch.int64, scale: float = 1.0,
    ignored: float = 0.2, ignore_index: int = IGNORE_INDEX, options: Options = PLAIN,
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """Input, weight, targets of which a share is ignored, what is ignored; then the options."""

    def make(data: Data) -> Sequence[Any]:
        x = data.normal(tokens, hidden, scale=scale)
        w = data.normal(rows, hidden, scale=hidden**-0.5 if hidden else 1)
        target = data.integers(0, rows, tokens, dtype=index)
        target[data.flags(tokens, share=ignored)] = ignore_index
        return x, w, target, ignore_index, *options.draw(data, rows)

    return make


Make = Callable[..., Callable[[Data], Sequence[Any]]]
"""Takes what `_head` takes."""


def _cases(make: Make) -> tuple[Case, ...]:
    """The shapes and options that all three operators take."""
    return (
        Case("head", make(19, 24, 131), DTYPES, frozenset({SMOKE})),
        Case("int32", make(21, 8, 129, index=torch.int32), DTYPES, frozenset({SMOKE})),
        Case("every_option", make(19, 24, 131, options=EVERY), DTYPES, frozenset({SMOKE})),
        Case("bias", make(12, 8, 70, options=Options(bias=True)), DTYPES, frozenset({EDGE})),
        Case("smoothing", make(12, 8, 70, options=Options(label_smoothing=0.3)), DTYPES, frozenset({EDGE})),
        Case("softcap", make(12, 8, 70, options=Options(softcap=2.0)), DTYPES, frozenset({EDGE})),
        Case("a_class_ignored", make(16, 16, 64, ignore_index=7, options=EVERY), DTYPES, frozenset({EDGE})),
        Case("none_ignored", make(17, 9, 130, ignored=0.0), DTYPES, frozenset({EDGE})),
        Case("one_token", make(1, 33, 128, ignored=0.0), DTYPES, frozenset({EDGE})),
        Case("one_feature", make(40, 1, 257), DTYPES, frozenset({EDGE})),
        Case("one_class", make(9, 5, 1, options=EVERY), DTYPES, frozenset({EDGE})),
        Case("past_every_block", make(130, 65, 1030, options=EVERY), DTYPES, frozenset({EDGE})),
        Case("peaked", make(24, 32, 200, scale=6.0), DTYPES, frozenset({EDGE})),
        Case("no_features", make(9, 0, 128, options=EVERY), DTYPES, frozenset({EDGE})),
        Case("no_tokens", make(0, 8, 128), DTYPES, frozenset({EDGE})),
    )


def _losses(*sizes: int, statistics: bool = True, **rest: Any) -> Callable[[Data], Sequence[Any]]:
    """`token_losses`, with everything it can find out."""
    head = _head(*sizes, **rest)
    return lambda data: (*head(data), statistics)


def _together(
    *sizes: int,
    mean: bool = True,
    wants: tuple[bool, bool, bool] = (True, True, True),
    weighs: bool = True,
    **rest: Any,
) -> Callable[[Data], Sequence[Any]]:
    """`loss_and_gradients`; with options, tokens have weights, the mean is by a given number, and all is found out."""
    head, options = _head(*sizes, **rest), rest.get("options", PLAIN)

    def make(data: Data) -> Sequence[Any]:
        x, w, target, ignored, *drawn = head(data)
        wide, extra = wide_of(data.dtype), options != PLAIN
        weights = data.uniform(0.5, 1.5, len(target), dtype=wide) if extra and weighs else None
        number = torch.tensor(7.0, dtype=wide) if extra and mean else None
        bias = wants[2] and options.bias
        return x, w, target, ignored, mean, *wants[:2], *drawn, weights, number, bias, extra

    return make


def _backward(
    *sizes: int, wants: tuple[bool, bool, bool] = (True, True, True), asks: bool = True, **rest: Any
) -> Callable[[Data], Sequence[Any]]:
    """`token_gradients` of what the forward pass took, with the statistics that belong to it.

    With options, gradients of everything that a user may ask for arrive, too, unless nobody `asks`.
    """
    head, options = _head(*sizes, **rest), rest.get("options", PLAIN)

    def make(data: Data) -> Sequence[Any]:
        x, w, target, ignored, *drawn = head(data)
        wide, extra = wide_of(data.dtype), options != PLAIN
        arguments = (x.to(wide), w.to(wide), target, ignored, *drawn, extra)
        _, *found = token_losses(*arguments)
        grad, *others = (data.normal(len(target), dtype=wide) for _ in range(4))
        beside = (found[3], *((found[5], *others) if asks else (None,) * 4)) if extra else (None,) * 5
        bias = wants[2] and options.bias
        return grad, x, w, target, ignored, *found[:3], *wants[:2], *drawn, *beside, bias

    return make


SIZES = (19, 24, 131)
_SOME = {"input": (True, False, False), "weight": (False, True, False), "bias": (False, False, True)}
_NONE = (False, False, False)
TOGETHER = (
    *_cases(_together),
    Case("sum", _together(*SIZES, mean=False), DTYPES, frozenset({SMOKE})),
    Case("unweighed", _together(*SIZES, weighs=False, options=EVERY), DTYPES, frozenset({EDGE})),
    Case("no_tokens_sum", _together(0, 8, 128, mean=False), DTYPES, frozenset({EDGE})),
    *(
        Case(f"{name}_grad_alone", _together(*SIZES, wants=wants, options=options), DTYPES, frozenset({EDGE}))
        for (name, wants), options in zip(_SOME.items(), (PLAIN, PLAIN, EVERY), strict=True)
    ),
    Case("loss_alone", _together(*SIZES, wants=_NONE), DTYPES, frozenset({SMOKE})),
    Case("loss_alone_every", _together(*SIZES, wants=_NONE, options=EVERY), DTYPES, frozenset({EDGE})),
)
LOSSES = (
    *_cases(_losses),
    Case("alone", _losses(*SIZES, statistics=False), DTYPES, frozenset({SMOKE})),
    *(
        Case(f"{name}_alone", _losses(9, 5, 70, statistics=False, options=options), DTYPES, frozenset({EDGE}))
        for name, options in {
            "smoothing": Options(label_smoothing=0.3), "softcap": Options(softcap=2.0), "z_loss": Options(z_loss=0.1),
        }.items()
    ),
)  # fmt: skip
GRADIENT = (
    *_cases(_backward),
    *(
        Case(f"{name}_grad_alone", _backward(*SIZES, wants=wants, options=options), DTYPES, frozenset({EDGE}))
        for (name, wants), options in zip(_SOME.items(), (PLAIN, PLAIN, EVERY), strict=True)
    ),
    Case(
        "all_smoothing", _backward(9, 5, 2003, ignored=0.0, asks=False, options=Options(label_smoothing=1.0)), DTYPES,
        frozenset({EDGE}),
    ),
)  # fmt: skip

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
    *(Invalid(f"{name}_half", {name: lambda _: torch.ones(131).half()}, InvalidArgument, name) for name in OF_CLASSES),
    *(
        Invalid(f"{name}_wide", {name: lambda _: torch.ones(131).double()}, InvalidArgument, name)
        for name in OF_CLASSES
    ),
    *(Invalid(f"{name}_length", {name: lambda _: torch.ones(130)}, InvalidArgument, name) for name in OF_CLASSES),
    Invalid("smoothing_above_one", {"label_smoothing": 1.5}, InvalidArgument, "label_smoothing"),
    Invalid("smoothing_negative", {"label_smoothing": -0.1}, InvalidArgument, "label_smoothing"),
    Invalid("softcap_negative", {"softcap": -1.0}, InvalidArgument, "softcap"),
    *(Invalid(f"{name}_nan", {name: math.nan}, InvalidArgument, name) for name in NUMBERS),
)
_TARGETS = (
    Invalid("target_too_large", {"target": lambda t: torch.full_like(t, 131)}, InvalidArgument, "target"),
    Invalid("target_negative", {"target": lambda t: torch.full_like(t, -1)}, InvalidArgument, "target"),
)
_WEIGHTS = (
    Invalid("token_weight_length", {"token_weight": lambda _: torch.ones(18)}, InvalidArgument, "token_weight"),
    Invalid("token_weight_half", {"token_weight": lambda _: torch.ones(19).half()}, InvalidArgument, "token_weight"),
    Invalid("normalizer_rank", {"normalizer": lambda _: torch.ones(1)}, InvalidArgument, "normalizer"),
    Invalid("normalizer_wide", {"normalizer": lambda _: torch.ones(()).double()}, InvalidArgument, "normalizer"),
)
_UPSTREAM = ("grad", *STATISTICS)
_OF_TOKENS = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in _UPSTREAM),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in _UPSTREAM),
    *(Invalid(f"{name}_wide", {name: lambda t: t.double()}, InvalidArgument, name) for name in _UPSTREAM),
    *(Invalid(f"{name}_length", {name: lambda t: t[:-1]}, InvalidArgument, name) for name in _UPSTREAM),
    *(
        Invalid(f"{name}_length", {name: lambda _: torch.ones(18)}, InvalidArgument, name)
        for name in ("predicted_logits", "entropy", "logprob_grad", "entropy_grad", "lse_grad")
    ),
    *(Invalid(f"{name}_without_predicted", {name: 1.0}, NullArgument, "predicted_logits") for name in PULLS),
    Invalid("lse_grad_without_predicted", {"lse_grad": lambda _: torch.ones(19)}, NullArgument, "predicted_logits"),
    Invalid(
        "entropy_grad_without_entropy",
        {"entropy_grad": lambda _: torch.ones(19), "predicted_logits": lambda _: torch.ones(19)},
        NullArgument, "entropy",
    ),
)  # fmt: skip


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


def _of_sizes(make: Make) -> Make:
    """With every option or none."""

    def sized(BT: int, H: int, V: int, *, options: bool = False) -> Callable[[Data], Sequence[Any]]:
        return make(BT, H, V, options=EVERY if options else PLAIN)

    return sized


SIZED = {
    "loss_and_gradients": _of_sizes(_together),
    "token_losses": _of_sizes(_losses),
    "token_gradients": _of_sizes(_backward),
}

SUITES = {
    "loss_and_gradients": Suite(TOGETHER, (*_INVALID, *_TARGETS, *_WEIGHTS)),
    "token_losses": Suite(LOSSES, (*_INVALID, *_TARGETS)),
    "token_gradients": Suite(GRADIENT, (*_INVALID, *_OF_TOKENS)),
    "scale_": Suite(SCALED, SCALED_INVALID, main="x", moved=_in_place),
}
