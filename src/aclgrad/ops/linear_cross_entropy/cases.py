"""Named inputs of the gradient: borders first, then what people run. The forward pass's are in `cases_forward`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidArgument, NullArgument, Unsupported
from ...core.spec import BF16, F16, F32, F64
from ...testing.cases import BENCH, BENCH_GPU, DOCUMENT, EDGE, NCL, PYTHON_ONLY, REAL, SMOKE, Case, Data, Invalid, Suite
from . import cases_forward, cases_shards, cases_training
from .reference import pack_bits as pack_bits

DTYPES = (BF16, F16, F32, F64)
DOCUMENTED = (BF16, F16)
LARGE = ((8192, 4096, 128256), (8192, 4096, 16032), (4096, 2048, 32000), (16384, 5120, 19008))
"""Tokens, hidden size and rows of the vocabulary of language models' heads, whole or one shard of them."""
OTHER_SHARDS = 1.7  # the sum of exponentials over the whole vocabulary, relative to this shard's


def _head(
    tokens: int, hidden: int, rows: int, *, softmax: bool = False, packed: bool = True,
    index: torch.dtype = torch.int64, share: float = 0.5, scale: float = 1.0,
) -> Callable[[Data], Sequence[Any]]:  # fmt: skip
    """A shard whose tokens find their target here or elsewhere, with consistent global statistics."""

    def make(data: Data) -> Sequence[Any]:
        wide = F64 if data.dtype == F64 else F32
        x, w = data.normal(tokens, hidden, scale=scale), data.normal(rows, hidden, scale=hidden**-0.5 if hidden else 1)
        logits = x.to(wide) @ w.to(wide).t()
        largest = logits.amax(1) if rows else torch.zeros(tokens, dtype=wide)
        total = (logits - largest[:, None]).exp().sum(1) * OTHER_SHARDS
        elsewhere = data.flags(tokens, share=share)
        mask = pack_bits(elsewhere) if packed else elsewhere
        target = data.integers(0, max(rows, 1), tokens, dtype=index)
        grad = data.normal(tokens, dtype=wide)
        if softmax:
            return grad, x, w, mask, target, 0.0, None, None, (logits - largest[:, None]).exp() / total[:, None]
        return grad, x, w, mask, target, 0.0, largest, total, None

    return make


SIZED = {
    "linear_cross_entropy_backward": lambda BT, H, V, *, softmax=False: _head(BT, H, V, softmax=softmax),
    "linear_online_max_sum": lambda BT, H, V: cases_forward._shard(BT, H, V),
    "cross_entropy_with_max_sum": lambda BT, V: cases_forward._whole(BT, V),
    **cases_training.SIZED,
    **cases_shards.SIZED,
}


def _document(data: Data) -> Sequence[Any]:
    size = 1024
    matrix = torch.zeros(size, size, dtype=data.dtype)
    return (
        torch.zeros(size), matrix, matrix.clone(), torch.zeros(size, dtype=torch.uint8),
        torch.zeros(size, dtype=torch.int32), 0.0, None, None, torch.zeros(size, size),
    )  # fmt: skip


CASES = (
    Case("recompute", _head(19, 24, 131), DTYPES, frozenset({SMOKE})),
    Case("softmax_given", _head(19, 24, 131, softmax=True), DTYPES, frozenset({SMOKE})),
    Case("bool_mask_int32", _head(21, 8, 129, packed=False, index=torch.int32), DTYPES, frozenset({EDGE})),
    Case("all_elsewhere", _head(16, 8, 128, share=1.0), DTYPES, frozenset({EDGE})),
    Case("all_here", _head(17, 9, 130, share=0.0, softmax=True), DTYPES, frozenset({EDGE})),
    Case("one_token", _head(1, 33, 128), DTYPES, frozenset({EDGE})),
    Case("one_feature", _head(40, 1, 257), DTYPES, frozenset({EDGE})),
    Case("past_every_block", _head(130, 65, 1030), DTYPES, frozenset({EDGE})),
    Case("peaked", _head(24, 32, 200, scale=6.0), DTYPES, frozenset({EDGE})),
    Case("no_tokens", _head(0, 8, 128), DTYPES, frozenset({EDGE})),
    Case("no_features", _head(9, 0, 128), DTYPES, frozenset({EDGE})),
    Case("tiny_vocabulary", _head(9, 5, 3), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case("no_vocabulary", _head(9, 5, 0), DTYPES, frozenset({EDGE, PYTHON_ONLY})),
    Case(
        "document", _document, (BF16,), frozenset({DOCUMENT}),
        expected=lambda: [torch.zeros(1024, 1024), torch.zeros(1024, 1024)],
    ),
    Case("shard", _head(256, 512, 4000), DOCUMENTED, frozenset({REAL})),
    Case("head_32000", _head(1024, 1024, 32000), (BF16,), frozenset({BENCH})),
    Case("head_8000", _head(512, 1024, 8000), (BF16, F16, F32), frozenset({BENCH})),
    Case("head_8000_softmax", _head(512, 1024, 8000, softmax=True), (BF16,), frozenset({BENCH})),
    *(
        Case(f"{mode}_{tokens}_{hidden}_{rows}", _head(tokens, hidden, rows, softmax=given), (BF16,),
             frozenset({BENCH_GPU}))
        for mode, given in (("head", False), ("softmax", True))
        for tokens, hidden, rows in LARGE
    ),
)  # fmt: skip

MATRICES = ("input", "weight", "input_grad", "weight_grad")

INVALID = (
    *(
        Invalid(f"{name}_null", {name: None}, NullArgument, name)
        for name in ("grad", "input", "weight", "target_mask", "masked_target", "logits_max", "sum_exp_logits")
    ),
    *(Invalid(f"{name}_null", {name: None}, NullArgument, name, ("aclnn",)) for name in ("input_grad", "weight_grad")),
    Invalid("label_smoothing", {"label_smoothing": 0.1}, InvalidArgument, "label_smoothing"),
    Invalid("label_smoothing_nan", {"label_smoothing": float("nan")}, InvalidArgument, "label_smoothing"),
    Invalid("grad_half", {"grad": lambda t: t.half()}, InvalidArgument, "grad"),
    Invalid("grad_double", {"grad": lambda t: t.double()}, InvalidArgument, "grad"),
    Invalid("all_float", {name: lambda t: t.float() for name in MATRICES}, InvalidArgument, "input", ("aclnn",)),
    Invalid("input_integer", {"input": lambda t: t.int()}, InvalidArgument, "input"),
    *(Invalid(f"{n}_of_another_dtype", {n: lambda t: t.half()}, InvalidArgument, n) for n in MATRICES[1:]),
    Invalid("target_mask_int32", {"target_mask": lambda t: t.int()}, InvalidArgument, "target_mask"),
    Invalid("masked_target_int16", {"masked_target": lambda t: t.short()}, InvalidArgument, "masked_target"),
    Invalid("masked_target_float", {"masked_target": lambda t: t.float()}, InvalidArgument, "masked_target"),
    *(Invalid(f"{n}_half", {n: lambda t: t.half()}, InvalidArgument, n) for n in ("logits_max", "sum_exp_logits")),
    Invalid("softmax_half", {"softmax": lambda _: torch.zeros(19, 131).half()}, InvalidArgument, "softmax"),
    *(
        Invalid(f"{n}_rank", {n: lambda t: t[None]}, InvalidArgument, n)
        for n in ("grad", "target_mask", "masked_target", "logits_max", "sum_exp_logits", *MATRICES)
    ),
    Invalid("softmax_rank", {"softmax": lambda _: torch.zeros(19)}, InvalidArgument, "softmax"),
    Invalid("softmax_shape", {"softmax": lambda _: torch.zeros(19, 130)}, InvalidArgument, "softmax"),
    Invalid("input_rows", {"input": lambda t: t[:-1]}, InvalidArgument, "input"),
    Invalid("weight_features", {"weight": lambda t: t[:, :-1]}, InvalidArgument, "weight"),
    Invalid("target_mask_too_short", {"target_mask": lambda t: t[:-1]}, InvalidArgument, "target_mask"),
    Invalid("bool_mask_length", {"target_mask": lambda _: torch.zeros(24).bool()}, InvalidArgument, "target_mask"),
    *(
        Invalid(f"{n}_length", {n: lambda t: t[:-1]}, InvalidArgument, n)
        for n in ("masked_target", "logits_max", "sum_exp_logits", "input_grad", "weight_grad")
    ),
    Invalid(
        "vocabulary_below_128", {name: lambda t: t[:127] for name in ("weight", "weight_grad")},
        InvalidArgument, "weight", ("aclnn",),
    ),
    Invalid("other_platform", {}, Unsupported, "", ("aclnn",), environment={"ACLGRAD_SOC": "Ascend950"}),
    Invalid("input_grad_expanded", {"input_grad": lambda t: t[:1].expand(t.shape)}, InvalidArgument, "input_grad"),
)  # fmt: skip


SUITES = {
    "linear_cross_entropy_backward": Suite(CASES, INVALID, refused_formats=(NCL,)),
    **cases_forward.SUITES,
    **cases_training.SUITES,
    **cases_shards.SUITES,
}
