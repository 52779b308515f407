"""Named inputs of the forward pass: statistics of a shard, and the loss from those of the whole vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import ANY_FORMAT, BENCH, BENCH_GPU, EDGE, REAL, SMOKE, Case, Data, Invalid, Suite

DTYPES = (BF16, F16, F32, F64)
DOCUMENTED = (BF16, F16)
LARGE = ((8192, 4096, 128256), (8192, 4096, 16032), (4096, 2048, 32000), (16384, 5120, 19008))
"""Tokens, hidden size and rows of the vocabulary of language models' heads, whole or one shard of them."""
SHARDS = 3  # a case's shard is the second of these; targets come from all of them
VECTORS = ("logits_max", "sum_exp_logits", "predicted_logits")


def _shard(
    tokens: int, hidden: int, rows: int, *, index: torch.dtype = torch.int64, scale: float = 1.0, first: bool = False
) -> Callable[[Data], Sequence[Any]]:
    """A shard of the vocabulary; targets lie in it or elsewhere, one of them nowhere."""

    def make(data: Data) -> Sequence[Any]:
        x = data.normal(tokens, hidden, scale=scale)
        w = data.normal(rows, hidden, scale=hidden**-0.5 if hidden else 1)
        start = 0 if first else rows
        target = data.integers(0, SHARDS * rows, tokens, dtype=index)
        target[tokens // 2 : tokens // 2 + 1] = -100
        return x, w, target, start, start + rows

    return make


STATISTICS = (
    Case("shard", _shard(19, 24, 131), DTYPES, frozenset({SMOKE})),
    Case("first_shard_int32", _shard(21, 8, 129, index=torch.int32, first=True), DTYPES, frozenset({SMOKE})),
    Case("whole_bytes", _shard(16, 16, 64), DTYPES, frozenset({EDGE})),
    Case("one_token", _shard(1, 33, 128, first=True), DTYPES, frozenset({EDGE})),
    Case("one_feature", _shard(40, 1, 257), DTYPES, frozenset({EDGE})),
    Case("one_row", _shard(9, 5, 1), DTYPES, frozenset({EDGE})),
    Case("past_every_block", _shard(130, 65, 1030), DTYPES, frozenset({EDGE})),
    Case("peaked", _shard(24, 32, 200, scale=6.0), DTYPES, frozenset({EDGE})),
    Case("no_tokens", _shard(0, 8, 128), DTYPES, frozenset({EDGE})),
    Case("no_features", _shard(9, 0, 128), DTYPES, frozenset({EDGE})),
    Case("real_shard", _shard(256, 512, 4000), DOCUMENTED, frozenset({REAL})),
    Case("head_32000", _shard(1024, 1024, 32000, first=True), (BF16,), frozenset({BENCH})),
    Case("head_8000", _shard(512, 1024, 8000, first=True), (BF16, F16, F32), frozenset({BENCH})),
    *(
        Case(f"head_{t}_{h}_{v}", _shard(t, h, v, first=True), (BF16,), frozenset({BENCH_GPU})) for t, h, v in LARGE
    ),
)  # fmt: skip

STATISTICS_INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in ("input", "weight", "target")),
    *(
        Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",))
        for name in (*VECTORS, "target_mask", "masked_target")
    ),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    Invalid("both_float", {n: lambda t: t.float() for n in ("input", "weight")}, InvalidArgument, "input", ("aclnn",)),
    Invalid("weight_of_another_dtype", {"weight": lambda t: t.half()}, InvalidArgument, "weight"),
    Invalid("target_int16", {"target": lambda t: t.short()}, InvalidArgument, "target"),
    Invalid("target_float", {"target": lambda t: t.float()}, InvalidArgument, "target"),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in VECTORS),
    *(Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name) for name in VECTORS),
    Invalid("target_mask_bool", {"target_mask": lambda t: t.bool()}, InvalidArgument, "target_mask"),
    Invalid("masked_target_int32", {"masked_target": lambda t: t.int()}, InvalidArgument, "masked_target"),
    Invalid(
        "logits_half", {"vocab_parallel_logits": lambda _: torch.zeros(19, 131).half()},
        InvalidArgument, "vocab_parallel_logits",
    ),
    *(
        Invalid(f"{name}_rank", {name: lambda t: t[None]}, InvalidArgument, name)
        for name in ("input", "weight", "target", *VECTORS, "target_mask", "masked_target")
    ),
    Invalid("no_vocabulary", {"weight": lambda t: t[:0]}, InvalidArgument, "weight"),
    Invalid(
        "too_many_features", {n: lambda t: torch.zeros(len(t), 65535, dtype=t.dtype) for n in ("input", "weight")},
        InvalidArgument, "input", ("aclnn",),
    ),
    Invalid("weight_features", {"weight": lambda t: t[:, :-1]}, InvalidArgument, "weight"),
    *(
        Invalid(f"{name}_length", {name: lambda t: t[:-1]}, InvalidArgument, name)
        for name in ("target", *VECTORS, "target_mask", "masked_target")
    ),
    Invalid(
        "logits_shape", {"vocab_parallel_logits": lambda _: torch.zeros(19, 130, dtype=BF16)},
        InvalidArgument, "vocab_parallel_logits",
    ),
    Invalid("negative_start", {"vocab_start_index": -1}, InvalidArgument, "vocab_start_index"),
    Invalid("end_before_start", {"vocab_end_index": 130}, InvalidArgument, "vocab_end_index"),
    Invalid("mask_expanded", {"target_mask": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "target_mask"),
)  # fmt: skip


def _whole(tokens: int, rows: int | None, *, scale: float = 1.0) -> Callable[[Data], Sequence[Any]]:
    """Statistics of a whole vocabulary, of which `rows` are here; without logits if None."""

    def make(data: Data) -> Sequence[Any]:
        wide = F64 if data.dtype == F64 else F32
        logits = None if rows is None else data.normal(tokens, rows, scale=scale)
        top = data.uniform(2 * scale, 4 * scale, tokens, dtype=wide)
        total = data.uniform(1, 100, tokens, dtype=wide)
        return top, total, data.uniform(-8, 0, tokens, dtype=wide), 0.0, None, None, logits

    return make


LOSSES = (
    Case("softmax", _whole(19, 131), (F32, BF16, F16, F64), frozenset({SMOKE})),
    Case("loss_alone", _whole(37, None), (F32, F64), frozenset({SMOKE})),
    Case("one_token", _whole(1, 128), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("one_column", _whole(130, 1), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("past_every_block", _whole(5, 2051), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("peaked", _whole(9, 200, scale=10.0), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("no_tokens", _whole(0, 128), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("no_columns", _whole(9, 0), (F32, BF16, F16, F64), frozenset({EDGE})),
    Case("head_8000", _whole(512, 8000), (F32, BF16, F16), frozenset({REAL, BENCH})),
    Case("head_8192_16032", _whole(8192, 16032), (BF16,), frozenset({BENCH_GPU})),
)

LOSSES_INVALID = (
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name) for name in VECTORS),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in ("loss", "softmax")),
    *(Invalid(f"{name}_half", {name: lambda t: t.half()}, InvalidArgument, name) for name in (*VECTORS, "loss")),
    *(
        Invalid(f"{name}_double", {name: lambda t: t.double()}, InvalidArgument, name)
        for name in (*VECTORS[1:], "loss", "vocab_parallel_logits", "softmax")
    ),
    Invalid("softmax_half", {"softmax": lambda t: t.half()}, InvalidArgument, "softmax"),
    Invalid("logits_integer", {"vocab_parallel_logits": lambda t: t.int()}, InvalidArgument, "vocab_parallel_logits"),
    Invalid("logits_max_rank", {"logits_max": lambda t: t[None]}, InvalidArgument, "logits_max"),
    *(
        Invalid(f"{name}_{change}", {name: alter}, InvalidArgument, name)
        for name in (*VECTORS[1:], "loss", "vocab_parallel_logits", "softmax")
        for change, alter in (("length", lambda t: t[:-1]), ("rank", lambda t: t[None]))
    ),
    Invalid("label_smoothing", {"label_smoothing": 0.1}, InvalidArgument, "label_smoothing"),
    Invalid("label_smoothing_nan", {"label_smoothing": float("nan")}, InvalidArgument, "label_smoothing"),
)


SUITES = {
    "linear_online_max_sum": Suite(STATISTICS, STATISTICS_INVALID, formats=ANY_FORMAT),
    "cross_entropy_with_max_sum": Suite(LOSSES, LOSSES_INVALID, main="vocab_parallel_logits", formats=ANY_FORMAT),
}
