"""Named inputs of the operators with resets: those of the LSTM, reset at times drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...testing.cases import BENCH, BENCH_GPU, EDGE, SMOKE, Case, Data, Invalid, Suite
from .cases_lstm import DTYPES, ints
from .variants import BACKWARD, FORWARD, Variants, with_reset

LENGTHS = (6, 4, 3, 1)
Make = Callable[..., Callable[[Data], Sequence[Any]]]


def _with(variants: Variants, make: Make) -> Make:
    """The same arguments and `reset`; `share` of the rows start a time anew."""

    def sized(T: int, N: int, I: int, H: int, *, share: float = 0.3, **options: Any) -> Callable[[Data], Sequence[Any]]:  # noqa: E741  the document's letters
        plain = make(T, N, I, H, **options)

        def build(data: Data) -> Sequence[Any]:
            arguments = plain(data)
            return with_reset(variants, arguments, data.flags(T, N, share=share), packed=False)

        return build

    return sized


def _cases(make: Make) -> tuple[Case, ...]:
    both: dict[str, Any] = {"layers": 2, "directions": 2}
    return (
        Case("two_layers_both_ways", make(6, 3, 8, 6, **both), DTYPES, frozenset({SMOKE})),
        Case("variable_length", make(6, 4, 5, 8, **both, lengths=LENGTHS), DTYPES, frozenset({SMOKE})),
        Case("batch_first_no_bias", make(5, 3, 4, 7, bias=False, batch_first=True), DTYPES, frozenset({EDGE})),
        Case("at_every_step", make(4, 3, 5, 6, directions=2, share=1.0), DTYPES, frozenset({EDGE})),
        Case("nowhere", make(4, 3, 5, 6, directions=2, share=0.0), DTYPES, frozenset({EDGE})),
        Case("one_step", make(1, 3, 4, 5, directions=2), DTYPES, frozenset({EDGE})),
        Case("past_every_block", make(9, 17, 33, 65, directions=2), DTYPES, frozenset({EDGE})),
        Case("no_batch", make(4, 0, 5, 6, layers=2), DTYPES, frozenset({EDGE})),
        Case("no_steps", make(0, 3, 5, 6, directions=2), DTYPES, frozenset({EDGE})),
        Case("T64_B32_256", make(64, 32, 256, 256, share=0.02), DTYPES[:1], frozenset({BENCH})),
        Case("T128_B64_512", make(128, 64, 512, 512, share=0.02), DTYPES[:1], frozenset({BENCH_GPU})),
    )


def _forward_cases(make: Make) -> tuple[Case, ...]:
    return (
        Case("inference", make(6, 3, 8, 4, layers=2, directions=2, train=False), DTYPES, frozenset({SMOKE})),
        Case("no_initial_state", make(4, 3, 5, 6, states=None), DTYPES, frozenset({EDGE})),
        Case(
            "variable_length_inference", make(6, 4, 5, 8, directions=2, lengths=LENGTHS, train=False), DTYPES,
            frozenset({EDGE}),
        ),
    )  # fmt: skip


INVALID = (
    Invalid("reset_null", {"reset": None}, NullArgument, "reset"),
    Invalid("reset_integer", {"reset": lambda t: t.int()}, InvalidArgument, "reset"),
    Invalid("reset_rank", {"reset": lambda t: t[0]}, InvalidArgument, "reset"),
    Invalid("reset_shape", {"reset": lambda t: t[:, :-1]}, InvalidArgument, "reset"),
    Invalid("reset_turned", {"reset": torch.t}, InvalidArgument, "reset"),
    Invalid("params_too_short", {"params": lambda m: m[:-1]}, InvalidArgument, "params"),
    Invalid("batch_sizes_with_3d_input", {"batch_sizes": ints([3] * 6)}, InvalidArgument, "input"),
)


def suites(forward: Make, backward: Make) -> dict[str, Suite]:
    """From what makes the arguments of `lstm` and `lstm_backward`."""
    forward, backward = _with(FORWARD, forward), _with(BACKWARD, backward)
    return {
        "lstm_with_resets": Suite((*_cases(forward), *_forward_cases(forward)), INVALID),
        "lstm_with_resets_backward": Suite(_cases(backward), INVALID),
    }
