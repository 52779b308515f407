"""Named inputs of the forward pass, and what those of the gradient share with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, EDGE, REAL, SMOKE, Case, Data, Invalid
from .dims import SAVED

DTYPES = (F32, F16, BF16, F64)
BENCH_SIZES: dict[str, dict[str, int]] = {
    "T64_B16_128": {"T": 64, "N": 16, "I": 128, "H": 128},
    "T128_B32_256": {"T": 128, "N": 32, "I": 256, "H": 256},
    "T64_B64_512": {"T": 64, "N": 64, "I": 512, "H": 512},
    "T64_B16_128_2x2": {"T": 64, "N": 16, "I": 128, "H": 128, "layers": 2, "directions": 2},
    "T64_B32_256_2x2": {"T": 64, "N": 32, "I": 256, "H": 256, "layers": 2, "directions": 2},
}
BENCH_GPU_SIZES: dict[str, dict[str, int]] = {
    "T128_B64_512": {"T": 128, "N": 64, "I": 512, "H": 512},
    "T256_B64_1024": {"T": 256, "N": 64, "I": 1024, "H": 1024},
    "T512_B16_256_2x2": {"T": 512, "N": 16, "I": 256, "H": 256, "layers": 2, "directions": 2},
    "T128_B256_1024_2": {"T": 128, "N": 256, "I": 1024, "H": 1024, "layers": 2},
    "T1024_B8_128": {"T": 1024, "N": 8, "I": 128, "H": 128},
    "T1024_B16_768": {"T": 1024, "N": 16, "I": 768, "H": 768},
}


def bench_cases(make: Callable[..., Callable[[Data], Sequence[Any]]]) -> tuple[Case, ...]:
    """The sizes that speed is measured at."""
    return (
        *(Case(name, make(**sizes), (F32,), frozenset({BENCH})) for name, sizes in BENCH_SIZES.items()),
        *(Case(name, make(**sizes), (F32, F16), frozenset({BENCH_GPU})) for name, sizes in BENCH_GPU_SIZES.items()),
    )


def weights(
    data: Data, I: int, H: int, layers: int, directions: int, bias: bool  # noqa: E741  the document's letters
) -> list[torch.Tensor]:  # fmt: skip
    """params, small enough that a long recurrence neither dies nor explodes."""
    params = []
    for layer in range(layers):
        for _ in range(directions):
            params.append(data.normal(4 * H, I if layer == 0 else directions * H, scale=(H or 1) ** -0.5))
            params.append(data.normal(4 * H, H, scale=(H or 1) ** -0.5))
            params += [data.normal(4 * H) for _ in range(2 if bias else 0)]
    return params


def counts(lengths: Sequence[int], steps: int) -> torch.Tensor:
    """batch_sizes of sequences with these lengths."""
    return (torch.tensor(lengths)[None] > torch.arange(steps)[:, None]).sum(1)


def first(change: Callable[[torch.Tensor], Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """Change the first member of a list."""
    return lambda members: [change(members[0]), *members[1:]]


def ints(sizes: Sequence[Any]) -> Callable[[Any], torch.Tensor]:
    """In place of whatever was there, these."""
    return lambda _: torch.tensor(sizes, dtype=torch.int64)


def _lstm(
    T: int, N: int, I: int, H: int, *,  # noqa: E741
    layers: int = 1, directions: int = 1, bias: bool = True, batch_first: bool = False,
    lengths: Sequence[int] | None = None, train: bool = True, states: int | None = 2,
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """A forward pass; `states` is the length of hx, None for no list at all."""

    def make(data: Data) -> Sequence[Any]:
        rows = (T * N,) if lengths is not None else (N, T) if batch_first else (T, N)
        params = weights(data, I, H, layers, directions, bias)
        hx = None if states is None else [data.normal(layers * directions, N, H) for _ in range(states)]
        batch_sizes = None if lengths is None else counts(lengths, T)
        x = data.normal(*rows, I)
        return x, params, hx, batch_sizes, bias, layers, 0.0, train, directions == 2, batch_first

    return make


BOTH_WAYS: dict[str, Any] = {"layers": 2, "directions": 2}
LENGTHS = (6, 4, 3, 1)

CASES = (
    Case("two_layers_both_ways", _lstm(4, 3, 12, 6, **BOTH_WAYS), DTYPES, frozenset({SMOKE})),
    Case("one_layer", _lstm(5, 2, 4, 4), DTYPES, frozenset({SMOKE})),
    Case("inference", _lstm(5, 2, 8, 4, **BOTH_WAYS, train=False), DTYPES, frozenset({SMOKE})),
    Case("narrow_input", _lstm(4, 3, 5, 6, **BOTH_WAYS), DTYPES, frozenset({EDGE})),
    Case("batch_first_no_bias", _lstm(5, 3, 4, 7, bias=False, batch_first=True), DTYPES, frozenset({EDGE})),
    Case("variable_length", _lstm(6, 4, 5, 8, **BOTH_WAYS, lengths=LENGTHS), DTYPES, frozenset({EDGE})),
    Case(
        "variable_length_inference", _lstm(6, 4, 5, 8, **BOTH_WAYS, lengths=LENGTHS, train=False), DTYPES,
        frozenset({EDGE}),
    ),
    Case("no_initial_state", _lstm(4, 3, 5, 6, states=None), DTYPES, frozenset({EDGE})),
    Case("empty_initial_state", _lstm(6, 4, 5, 6, **BOTH_WAYS, lengths=LENGTHS, states=0), DTYPES, frozenset({EDGE})),
    Case("one_step", _lstm(1, 3, 4, 5), DTYPES, frozenset({EDGE})),
    Case("one_of_everything", _lstm(1, 1, 1, 1), DTYPES, frozenset({EDGE})),
    Case("past_every_block", _lstm(9, 17, 33, 65, directions=2), DTYPES, frozenset({EDGE})),
    Case("three_layers", _lstm(7, 5, 9, 20, layers=3), DTYPES, frozenset({EDGE})),
    Case("three_layers_inference", _lstm(7, 5, 9, 20, layers=3, train=False), DTYPES, frozenset({EDGE})),
    Case("no_batch", _lstm(4, 0, 5, 6, layers=2), DTYPES, frozenset({EDGE})),
    Case("no_steps", _lstm(0, 3, 5, 6, directions=2), DTYPES, frozenset({EDGE})),
    Case("no_features", _lstm(4, 3, 0, 6), DTYPES, frozenset({EDGE})),
    Case("no_hidden", _lstm(4, 3, 5, 0), DTYPES, frozenset({EDGE})),
    Case("T32_B16_H128_2x2", _lstm(32, 16, 64, 128, **BOTH_WAYS), (F32, F16), frozenset({REAL})),
    *bench_cases(_lstm),
)  # fmt: skip

STATES = ("output", "hy", "cy")
LISTS = ("params", "hx", *SAVED)

INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("input", "params")),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in (*STATES, *SAVED)),
    *(Invalid(f"{name}_too_short", {name: lambda m: m[:-1]}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_too_long", {name: lambda m: [*m, m[0]]}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_with_a_null_member", {name: first(lambda _: None)}, NullArgument, name) for name in LISTS),
    Invalid("num_layers_zero", {"num_layers": 0}, InvalidArgument, "num_layers"),
    Invalid("num_layers_negative", {"num_layers": -1}, InvalidArgument, "num_layers"),
    Invalid("num_layers_huge", {"num_layers": 2**62}, InvalidArgument, "params"),
    *(Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name) for name in ("input", *STATES)),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in STATES),
    *(Invalid(f"{name}_integer", {name: first(torch.Tensor.int)}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_half", {name: first(torch.Tensor.half)}, InvalidArgument, name) for name in LISTS),
    Invalid(
        "all_bfloat16",
        {
            **{name: lambda t: t.bfloat16() for name in ("input", *STATES)},
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
    Invalid(
        "batch_sizes_empty", {"batch_sizes": ints([]), "input": lambda t: t.flatten(0, 1)}, InvalidArgument,
        "batch_sizes",
    ),
    Invalid("batch_sizes_with_3d_input", {"batch_sizes": ints([3, 3, 2, 1])}, InvalidArgument, "input"),
    Invalid(
        "rows_that_are_no_multiple_of_the_steps",
        {"batch_sizes": ints([3, 3, 2, 1]), "input": lambda t: t.flatten(0, 1)[:-1]}, InvalidArgument, "input",
    ),
    Invalid("input_rank", {"input": lambda t: t[0]}, InvalidArgument, "input"),
    Invalid("input_features", {"input": lambda t: t[..., :-1]}, InvalidArgument, "params"),
    Invalid("input_batch", {"input": lambda t: t[:, :-1]}, InvalidArgument, "hx"),
    *(Invalid(f"{name}_rank", {name: lambda t: t[0]}, InvalidArgument, name) for name in STATES),
    *(Invalid(f"{name}_shape", {name: lambda t: t[..., :-1]}, InvalidArgument, name) for name in STATES),
    *(Invalid(f"{name}_rank", {name: first(lambda t: t[0])}, InvalidArgument, name) for name in LISTS),
    *(Invalid(f"{name}_shape", {name: first(lambda t: t[..., :-1])}, InvalidArgument, name) for name in LISTS),
    Invalid("params_rows", {"params": first(lambda t: t[:-1])}, InvalidArgument, "params"),
    Invalid("output_expanded", {"output": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "output"),
)  # fmt: skip
