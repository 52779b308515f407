"""Named inputs of the operators of packed sequences: those of the LSTM, for lengths of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...testing.cases import BENCH, EDGE, SMOKE, Case, Data, Invalid, Suite
from .cases_lstm import DTYPES, counts, first, ints, weights
from .dims import SAVED

LENGTHS = (6, 4, 3, 1)
BOTH_WAYS: dict[str, Any] = {"layers": 2, "directions": 2}
Make = Callable[..., Callable[[Data], Sequence[Any]]]


def forward(
    lengths: Sequence[int], I: int, H: int, *,  # noqa: E741  the document's letters
    layers: int = 1, directions: int = 1, bias: bool = True, train: bool = True, share: float | None = None,
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """Sequences of these lengths; with a `share` so many of the rows start anew."""

    def make(data: Data) -> Sequence[Any]:
        total, chains = sum(lengths), layers * directions
        hx = [data.normal(chains, len(lengths), H) for _ in range(2)]
        batch_sizes = counts(lengths, max(lengths, default=0))
        reset = None if share is None else data.flags(total, share=share)
        x, params = data.normal(total, I), weights(data, I, H, layers, directions, bias)
        return x, params, hx, batch_sizes, reset, bias, layers, 0.0, train, directions == 2, False

    return make


def backward(
    lengths: Sequence[int], I: int, H: int, *, upstream: Sequence[bool] = (True, True, True), **options: Any,  # noqa: E741
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """Saved activations in their ranges."""

    def make(data: Data) -> Sequence[Any]:
        x, params, hx, batch_sizes, reset, *attributes = forward(lengths, I, H, **options)(data)
        total, chains = sum(lengths), hx[0].shape[0]
        saved = {name: [data.uniform(0, 1, total, H) for _ in range(chains)] for name in "ifo"}
        saved |= {name: [data.uniform(-1, 1, total, H) for _ in range(chains)] for name in "jh"}
        saved["c"] = [data.normal(total, H) for _ in range(chains)]
        saved["tanhc"] = [state.double().tanh().to(data.dtype) for state in saved["c"]]
        directions = 1 + attributes[-2]
        shapes = (total, directions * H), hx[0].shape, hx[0].shape
        dy, dh, dc = (data.normal(*shape) if given else None for shape, given in zip(shapes, upstream, strict=True))
        lists = [saved[name] for name in SAVED]
        return x, hx, params, dy, dh, dc, *lists, batch_sizes, reset, *attributes, None

    return make


def _cases(make: Make) -> tuple[Case, ...]:
    return (
        Case("two_layers_both_ways", make(LENGTHS, 5, 8, **BOTH_WAYS, share=0.3), DTYPES, frozenset({SMOKE})),
        Case("without_resets", make(LENGTHS, 5, 6, **BOTH_WAYS), DTYPES, frozenset({EDGE})),
        Case("no_bias", make((5, 5, 2), 4, 7, directions=2, bias=False), DTYPES, frozenset({EDGE})),
        Case("reset_at_every_step", make(LENGTHS, 5, 6, directions=2, share=1.0), DTYPES, frozenset({EDGE})),
        Case("equal_lengths", make((4, 4, 4), 5, 6, directions=2), DTYPES, frozenset({EDGE})),
        Case("one_step_each", make((1, 1, 1), 4, 5, directions=2), DTYPES, frozenset({EDGE})),
        Case("one_sequence", make((5,), 3, 4, directions=2), DTYPES, frozenset({EDGE})),
        Case("one_of_everything", make((1,), 1, 1), DTYPES, frozenset({EDGE})),
        Case("one_long_many_short", make((30, *[1] * 20), 5, 6, directions=2), DTYPES, frozenset({EDGE})),
        Case("no_step_for_some", make((3, 2, 0, 0), 4, 5, directions=2), DTYPES, frozenset({EDGE})),
        Case("past_every_block", make((9, 9, 8, *range(7, 0, -1), *[1] * 7), 33, 65, directions=2), DTYPES,
             frozenset({EDGE})),
        Case("many_rows", make((*[40] * 12, *range(39, 0, -2)), 3, 4, directions=2), DTYPES, frozenset({EDGE})),
        Case("no_rows", make((0, 0), 4, 5, directions=2), DTYPES, frozenset({EDGE})),
        Case("no_batch", make((), 4, 5), DTYPES, frozenset({EDGE})),
        Case("T128_B32_256", make(tuple(range(128, 0, -4)), 256, 256), DTYPES[:1], frozenset({BENCH})),
    )  # fmt: skip


FORWARD_CASES = (
    Case("inference", forward(LENGTHS, 8, 4, **BOTH_WAYS, share=0.3, train=False), DTYPES, frozenset({SMOKE})),
    Case("three_layers_inference", forward((7, 3, 3, 1), 9, 20, layers=3, train=False), DTYPES, frozenset({EDGE})),
    Case("no_step_for_some_inference", forward((3, 2, 0, 0), 4, 5, directions=2, train=False), DTYPES,
         frozenset({EDGE})),
)  # fmt: skip
BACKWARD_CASES = (
    Case("only_upstream_y", backward(LENGTHS, 5, 6, upstream=(True, False, False)), DTYPES, frozenset({EDGE})),
    Case("no_upstream_y", backward(LENGTHS, 5, 6, upstream=(False, True, True)), DTYPES, frozenset({EDGE})),
)

INVALID = (
    Invalid("hx_null", {"hx": None}, NullArgument, "hx"),
    Invalid("hx_empty", {"hx": []}, InvalidArgument, "hx"),
    Invalid("hx_rank", {"hx": first(lambda t: t[0])}, InvalidArgument, "hx"),
    Invalid("hx_batch", {"hx": lambda m: [m[0], m[1][:, :-1]]}, InvalidArgument, "hx"),
    Invalid("batch_sizes_null", {"batch_sizes": None}, NullArgument, "batch_sizes"),
    Invalid("batch_sizes_int32", {"batch_sizes": lambda t: t.int()}, InvalidArgument, "batch_sizes"),
    Invalid("batch_sizes_rank", {"batch_sizes": lambda t: t[None]}, InvalidArgument, "batch_sizes"),
    Invalid("input_padded", {"input": lambda t: t[None]}, InvalidArgument, "input"),
    Invalid("params_rank", {"params": first(lambda t: t[0])}, InvalidArgument, "params"),
    Invalid("params_too_short", {"params": lambda m: m[:-1]}, InvalidArgument, "params"),
    Invalid("reset_integer", {"reset": ints([0] * sum(LENGTHS))}, InvalidArgument, "reset"),
    Invalid("reset_shape", {"reset": lambda _: torch.zeros(3, dtype=torch.bool)}, InvalidArgument, "reset"),
)

SUITES = {
    "lstm_packed": Suite((*_cases(forward), *FORWARD_CASES), INVALID),
    "lstm_packed_backward": Suite((*_cases(backward), *BACKWARD_CASES), INVALID),
}
