"""Named inputs of the operator that unites the statistics of several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.rules import ND
from ...core.spec import F16, F32
from ...testing.cases import (
    BENCH,
    BENCH_GPU,
    EDGE,
    FRACTAL_NZ,
    NCDHW,
    NCHW,
    PYTHON_ONLY,
    REAL,
    SMOKE,
    Case,
    Data,
    Invalid,
    Suite,
    bytes_moved,
)
from .cases_batches import DTYPES, FAST, wide

OLD_CHIP = {"ACLGRAD_SOC": "Ascend310P"}


def _gather(
    processes: int,
    channels: int,
    running: bool = True,
    counts: torch.dtype | None = None,
    vectors: Callable[[Data], torch.dtype] = lambda data: data.dtype,
) -> Callable[[Data], Sequence[Any]]:
    """Statistics of processes that saw differently many elements; the running ones are as wide as modules keep them."""

    def make(data: Data) -> Sequence[Any]:
        w, c, dtype = processes, channels, vectors(data)
        return (
            data.normal(2, c, 3), data.normal(w, c, dtype=dtype), data.uniform(0.3, 2, w, c, dtype=dtype),
            data.normal(c, dtype=wide(data)) if running else None,
            data.uniform(0.5, 2, c, dtype=wide(data)) if running else None,
            0.1, 1e-5, data.integers(2, 200, w).to(counts or wide(data)),
        )  # fmt: skip

    return make


CASES = (
    Case("three_processes", _gather(3, 5), DTYPES, frozenset({SMOKE})),
    Case("one_process", _gather(1, 7), DTYPES, frozenset({SMOKE})),
    Case("no_running_statistics", _gather(3, 5, running=False), DTYPES, frozenset({EDGE})),
    Case("float32_statistics", _gather(4, 9, vectors=wide), (F16, F32), frozenset({EDGE})),
    Case("half_counts", _gather(4, 9, counts=F16), (F16, F32), frozenset({EDGE})),
    Case("integer_counts", _gather(4, 9, counts=torch.int64), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("one_channel", _gather(6, 1), DTYPES, frozenset({EDGE})),
    Case("one_past_a_block", _gather(129, 257), DTYPES, frozenset({EDGE})),
    Case("no_process", _gather(0, 4), DTYPES, frozenset({EDGE})),
    Case("no_channels", _gather(3, 0), DTYPES, frozenset({EDGE})),
    Case("W8_C2048", _gather(8, 2048, vectors=wide), FAST, frozenset({REAL, BENCH, BENCH_GPU})),
    Case("W256_C2048", _gather(256, 2048, vectors=wide), FAST, frozenset({BENCH, BENCH_GPU})),
)

TABLES = ("mean", "invstd")
RUNNING = ("running_mean", "running_var")
RESULTS = ("mean_all", "invstd_all")

INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("input", *TABLES, "counts")),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in RESULTS),
    Invalid("running_mean_alone", {"running_var": None}, NullArgument, "running_var"),
    *(
        Invalid(f"{name}_integer", {name: lambda t: t.int()}, InvalidArgument, name)
        for name in ("input", *TABLES, *RUNNING, *RESULTS)
    ),
    *(
        Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name, ("aclnn",))
        for name in ("input", *TABLES, *RUNNING, "counts", *RESULTS)
    ),
    Invalid("counts_integer", {"counts": lambda t: t.int()}, InvalidArgument, "counts", ("aclnn",)),
    Invalid("counts_bool", {"counts": lambda t: t.bool()}, InvalidArgument, "counts"),
    *(
        Invalid(
            f"{name}_bf16_on_an_old_chip", {name: lambda t: t.bfloat16()}, InvalidArgument, name, ("aclnn",), OLD_CHIP
        )
        for name in ("input", "mean", "running_var", "counts", "invstd_all")
    ),
    Invalid("rank1", {"input": lambda t: t[0, :, 0]}, InvalidArgument, "input"),
    Invalid("rank9", {"input": lambda t: t.reshape(*t.shape, *[1] * 6)}, InvalidArgument, "input", ("aclnn",)),
    *(Invalid(f"{name}_rank", {name: lambda t: t[0]}, InvalidArgument, name) for name in TABLES),
    *(Invalid(f"{name}_channels", {name: lambda t: t[:, 1:]}, InvalidArgument, name) for name in TABLES),
    Invalid("invstd_processes", {"invstd": lambda t: t[1:]}, InvalidArgument, "invstd"),
    Invalid("counts_processes", {"counts": lambda t: t[1:]}, InvalidArgument, "counts"),
    Invalid("counts_rank", {"counts": lambda t: t[None]}, InvalidArgument, "counts"),
    *(Invalid(f"{name}_length", {name: lambda t: t[1:]}, InvalidArgument, name) for name in (*RUNNING, *RESULTS)),
    *(Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name) for name in (*RUNNING, *RESULTS)),
    *(
        Invalid(f"{name}_expanded", {name: lambda t: t[:1].expand(t.shape)}, InvalidArgument, name)
        for name in (*RUNNING, *RESULTS)
    ),
)


def _moved(args: Sequence[Any], outs: Sequence[Any]) -> int:
    """The batch itself is not read; the running statistics are read and written."""
    return bytes_moved(args[1:], [*outs, *args[3:5]])


SUITES = {
    "batch_norm_gather_stats_with_counts": Suite(
        CASES, INVALID, main="mean", moved=_moved, formats=(NCHW, ND, NCDHW), refused_formats=(FRACTAL_NZ,)
    )
}
