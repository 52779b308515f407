"""Named inputs of the family: borders first, then what people run. Those of the forward pass are in `cases_lstm`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.rules import ND
from ...core.spec import F16, F32
from ...testing.cases import ANY_FORMAT, DOCUMENT, EDGE, NCHW, NCL, PYTHON_ONLY, REAL, SMOKE, Case, Data, Invalid, Suite
from . import cases_lstm, cases_packed, cases_resets
from .cases_lstm import DTYPES, bench_cases, counts, first, ints, weights
from .dims import SAVED


def _lstm(
    T: int, N: int, I: int, H: int, *,  # noqa: E741  the document's letters
    layers: int = 1, directions: int = 1, bias: bool = True, batch_first: bool = False,
    lengths: Sequence[int] | None = None, upstream: Sequence[bool] = (True, True, True),
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """Saved activations in their ranges."""

    def make(data: Data) -> Sequence[Any]:
        chains = layers * directions
        rows = (T * N,) if lengths is not None else (N, T) if batch_first else (T, N)
        params = weights(data, I, H, layers, directions, bias)
        sigmoids = {name: [data.uniform(0, 1, T, N, H) for _ in range(chains)] for name in "ifo"}
        candidate = [data.uniform(-1, 1, T, N, H) for _ in range(chains)]
        c = [data.normal(T, N, H) for _ in range(chains)]
        h = [data.uniform(-1, 1, T, N, H) for _ in range(chains)]
        tanhc = [state.double().tanh().to(data.dtype) for state in c]
        gradients = [data.normal(*rows, directions * H), data.normal(chains, N, H), data.normal(chains, N, H)]
        dy, dh, dc = (g if given else None for g, given in zip(gradients, upstream, strict=True))
        batch_sizes = None if lengths is None else counts(lengths, T)
        hx = [data.normal(chains, N, H), data.normal(chains, N, H)]
        return (
            data.normal(*rows, I), hx, params, dy, dh, dc,
            sigmoids["i"], candidate, sigmoids["f"], sigmoids["o"], h, c, tanhc,
            batch_sizes, bias, layers, 0.0, True, directions == 2, batch_first, None,
        )  # fmt: skip

    return make


def _of_sizes(make: Callable[..., Callable[[Data], Sequence[Any]]]) -> Callable[..., Callable[[Data], Sequence[Any]]]:
    """The sizes that people speak of; without `I`, a layer's input is as wide as its state."""

    def sized(
        T: int, N: int, H: int, I: int = 0, *,  # noqa: E741
        layers: int = 1, directions: int = 1, bias: bool = True, batch_first: bool = False,
    ) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
        return make(T, N, I or H, H, layers=layers, directions=directions, bias=bias, batch_first=batch_first)

    return sized


SIZED = {"lstm": _of_sizes(cases_lstm._lstm), "lstm_backward": _of_sizes(_lstm)}


def _document(data: Data) -> Sequence[Any]:
    def ones(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=data.dtype)

    step, state = ones(1, 1, 8), ones(1, 1, 8)
    saved = [[step.clone()] for _ in range(6)]
    return (
        step, [state, state.clone()], [ones(32, 8), ones(32, 8), ones(32), ones(32)],
        step.clone(), state.clone(), state.clone(), *saved, [step.tanh()],
        None, True, 1, 0.0, False, False, False, None,
    )  # fmt: skip


def _document_prints() -> Sequence[Any]:
    zeros = torch.zeros
    return [zeros(1, 1, 8), zeros(1, 1, 8), torch.full((1, 1, 8), 1.839949), [zeros(32, 8)] * 2 + [zeros(32)] * 2]


CASES = (
    Case("two_layers_both_ways", _lstm(4, 3, 5, 6, layers=2, directions=2), DTYPES, frozenset({SMOKE})),
    Case("one_layer", _lstm(5, 2, 3, 4), DTYPES, frozenset({SMOKE})),
    Case("batch_first_no_bias", _lstm(5, 3, 4, 7, bias=False, batch_first=True), DTYPES, frozenset({EDGE})),
    Case("variable_length", _lstm(6, 4, 5, 8, layers=2, directions=2, lengths=(6, 4, 3, 1)), DTYPES, frozenset({EDGE})),
    Case("one_step", _lstm(1, 3, 4, 5), DTYPES, frozenset({EDGE})),
    Case("one_of_everything", _lstm(1, 1, 1, 1), DTYPES, frozenset({EDGE})),
    Case("past_every_block", _lstm(9, 17, 33, 65, directions=2), DTYPES, frozenset({EDGE})),
    Case("three_layers", _lstm(7, 5, 9, 20, layers=3), DTYPES, frozenset({EDGE})),
    Case("no_upstream_y", _lstm(4, 3, 5, 6, upstream=(False, True, True)), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("only_upstream_y", _lstm(4, 3, 5, 6, upstream=(True, False, False)), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("no_batch", _lstm(4, 0, 5, 6, layers=2), DTYPES, frozenset({EDGE})),
    Case("no_steps", _lstm(0, 3, 5, 6, directions=2), DTYPES, frozenset({EDGE})),
    Case("no_features", _lstm(4, 3, 0, 6), DTYPES, frozenset({EDGE})),
    Case("no_hidden", _lstm(4, 3, 5, 0), DTYPES, frozenset({EDGE})),
    Case("document", _document, (F32,), frozenset({DOCUMENT}), expected=_document_prints),
    Case("T32_B16_H128_2x2", _lstm(32, 16, 64, 128, layers=2, directions=2), (F32, F16), frozenset({REAL})),
    *bench_cases(_lstm),
)

SINGLES = ("dx", "dh_prev", "dc_prev", "dy", "dh", "dc")
LISTS = ("hx", "params", *SAVED, "dparams")


INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("input", "hx", "params", *SAVED)),
    *(
        Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",))
        for name in ("dy", "dh", "dc", "dx", "dh_prev", "dc_prev", "dparams")
    ),
    *(Invalid(f"{name}_too_short", {name: lambda m: m[:-1]}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_too_long", {name: lambda m: [*m, m[0]]}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_with_a_null_member", {name: first(lambda _: None)}, NullArgument, name) for name in LISTS),
    Invalid("num_layers_zero", {"num_layers": 0}, InvalidArgument, "num_layers"),
    Invalid("num_layers_negative", {"num_layers": -1}, InvalidArgument, "num_layers"),
    Invalid("num_layers_huge", {"num_layers": 2**62}, InvalidArgument, "i"),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in SINGLES),
    *(Invalid(f"{name}_half", {name: first(torch.Tensor.half)}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name) for name in SINGLES),
    *(Invalid(f"{name}_integer", {name: first(torch.Tensor.int)}, InvalidArgument, name) for name in LISTS),
    Invalid(
        "all_bfloat16",
        {
            **{name: lambda t: t.bfloat16() for name in ("input", *SINGLES)},
            **{name: lambda m: [t.bfloat16() for t in m] for name in LISTS},
        },
        InvalidArgument, "input", ("aclnn",),
    ),
    Invalid(
        "batch_sizes_int32", {"batch_sizes": lambda _: torch.tensor([3, 3, 2, 1]).int()}, InvalidArgument, "batch_sizes"
    ),
    Invalid(
        "batch_sizes_rank", {"batch_sizes": ints([[3, 3, 2, 1]]), "input": lambda t: t.flatten(0, 1)},
        InvalidArgument, "batch_sizes",
    ),
    Invalid("batch_sizes_with_3d_input", {"batch_sizes": ints([3, 3, 2, 1])}, InvalidArgument, "input"),
    Invalid("input_rank", {"input": lambda t: t[0]}, InvalidArgument, "input"),
    Invalid("input_batch", {"input": lambda t: t[:, :-1]}, InvalidArgument, "input"),
    *(Invalid(f"{name}_rank", {name: lambda t: t[0]}, InvalidArgument, name) for name in SINGLES),
    *(Invalid(f"{name}_shape", {name: lambda t: t[..., :-1]}, InvalidArgument, name) for name in SINGLES),
    *(
        Invalid(f"{name}_shape", {name: first(lambda t: t[..., :-1])}, InvalidArgument, name)
        for name in ("hx", "params", *SAVED[1:], "dparams")
    ),
    Invalid("i_rank", {"i": first(lambda t: t[0])}, InvalidArgument, "i"),
    Invalid("i_hidden", {"i": lambda m: [*m[:-1], m[-1][..., :-1]]}, InvalidArgument, "i"),
    Invalid("output_mask_length", {"output_mask": (True, True)}, InvalidArgument, "output_mask", ("python",)),
    Invalid("dx_expanded", {"dx": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "dx"),
)  # fmt: skip


SUITES = {
    "lstm": Suite(cases_lstm.CASES, cases_lstm.INVALID, formats=ANY_FORMAT),
    "lstm_backward": Suite(CASES, INVALID, formats=(ND, NCL), refused_formats=(NCHW,)),
    **cases_resets.suites(cases_lstm._lstm, _lstm),
    **cases_packed.SUITES,
}
