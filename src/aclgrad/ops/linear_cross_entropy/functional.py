"""The family's functions."""

from __future__ import annotations

from typing import TypeAlias, cast

import torch
from torch import Tensor

from ...core.errors import InvalidArgument
from . import spec, spec_forward
from .reference import unpack_bits

Statistics: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]"


def linear_online_max_sum(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    *,
    return_logits: bool = False,
    out: tuple[Tensor | None, ...] | None = None,
    backend: str | None = None,
) -> Statistics:
    """What one shard of the vocabulary, rows [start, end) of it, contributes to the softmax of a linear layer.

    Returns (logits_max, sum_exp_logits, predicted_logits, target_mask, masked_target, vocab_parallel_logits): with
    logits = input · weightᵀ, each token's largest logit, Σ exp(logit − largest), its target's logit − largest (0 if
    the target lies elsewhere); `target_mask`, which is 1 where the target lies elsewhere, eight tokens a byte, least
    significant bit first; the target's row in `weight` (0 if elsewhere); the logits, or None unless `return_logits` is
    set or `out` has a place for them.

    Shapes: `input` [BT, H] and `weight` [V, H] of one dtype: float16, bfloat16, float32 or float64; `target` [BT] int32
    or int64. Logits are rounded to the dtype of `input`; statistics are float32 [BT] (float64 for float64).

    >>> import torch, aclgrad
    >>> x, w = torch.eye(2, 4), torch.eye(3, 4)
    >>> top, total, predicted, mask, row, _ = aclgrad.linear_online_max_sum(x, w, torch.tensor([101, 7]), 100, 103)
    >>> top, total, predicted
    (tensor([1., 1.]), tensor([1.7358, 1.7358]), tensor([-1.,  0.]))
    >>> mask, row
    (tensor([254], dtype=torch.uint8), tensor([1, 0]))
    """
    arguments = (input, weight, target, vocab_start_index, vocab_end_index)
    results = spec_forward.linear_online_max_sum(*arguments, out=out, backend=backend, asked=return_logits)
    return cast(Statistics, results)


def cross_entropy_with_max_sum(
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    predicted_logits: Tensor,
    label_smoothing: float = 0.0,
    input: Tensor | None = None,
    weight: Tensor | None = None,
    vocab_parallel_logits: Tensor | None = None,
    *,
    out: tuple[Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Loss [BT] = log(sum_exp_logits) − predicted_logits, and the softmax [BT, V] if the logits are given.

    The three vectors [BT] are of the whole vocabulary: maxima of the shards' `logits_max`, sums of what
    `linear_online_max_sum` returns after a shift by the change of the maximum. The softmax is that of this shard's
    columns, exp(logits − logits_max) / sum_exp_logits, in the dtype of the vectors: float32 or float64. `input` and
    `weight` are not looked at.

    >>> import torch, aclgrad
    >>> aclgrad.cross_entropy_with_max_sum(torch.zeros(2), torch.tensor([1.0, 4.0]), torch.tensor([-1.0, 0.0]))
    (tensor([1.0000, 1.3863]), None)
    """
    arguments = (
        logits_max, sum_exp_logits, predicted_logits, label_smoothing, input, weight, vocab_parallel_logits
    )  # fmt: skip
    results = spec_forward.cross_entropy_with_max_sum(*arguments, out=out, backend=backend)
    return cast("tuple[Tensor, Tensor | None]", results)


def linear_cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float = 0.0,
    logits_max: Tensor | None = None,
    sum_exp_logits: Tensor | None = None,
    softmax: Tensor | None = None,
    *,
    check: bool = False,
    out: tuple[Tensor | None, Tensor | None] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of a linear layer followed by cross entropy, for one shard of the vocabulary.

    With p = softmax(input · weightᵀ), minus 1 at each token's own target, times `grad`: returns
    (input_grad [BT, H] = p · weight, weight_grad [V, H] = pᵀ · input). Give `softmax` [BT, V], or `logits_max` and
    `sum_exp_logits` [BT] of the whole vocabulary to have it recomputed in bounded memory.

    Shapes: `grad` [BT] float32; `input` [BT, H] and `weight` [V, H] of one dtype: float16, bfloat16, float32 or
    float64; `target_mask` is 1 where the target lies in another shard: uint8 with eight tokens a byte, least
    significant bit first, or bool [BT]; `masked_target` [BT] int32 or int64 is the target's row in `weight`. A row out
    of range subtracts nothing, or raises with `check=True`. p is rounded once to a half type, products accumulate in
    float32.

    >>> import torch, aclgrad
    >>> x, w = torch.eye(2, 4), torch.zeros(3, 4)
    >>> here, target = torch.tensor([False, True]), torch.tensor([0, 0])
    >>> dx, dw = aclgrad.linear_cross_entropy_backward(
    ...     torch.ones(2), x, w, here, target, logits_max=torch.zeros(2), sum_exp_logits=torch.full((2,), 4.0))
    >>> dw[:, :2]
    tensor([[-0.7500,  0.2500],
            [ 0.2500,  0.2500],
            [ 0.2500,  0.2500]])
    """
    arguments = (
        grad, input, weight, target_mask, masked_target, label_smoothing, logits_max, sum_exp_logits, softmax
    )  # fmt: skip
    if check:
        spec.linear_cross_entropy_backward.plan(arguments, backend=backend)  # shapes first
        _require_targets(target_mask, masked_target, weight.shape[0])
    gradients = spec.linear_cross_entropy_backward(*arguments, out=out, backend=backend)
    return cast("tuple[Tensor, Tensor]", gradients)


def _require_targets(target_mask: Tensor, masked_target: Tensor, rows: int) -> None:
    """Every token that this shard owns has a target inside it."""
    elsewhere = target_mask
    if target_mask.dtype == torch.uint8:
        elsewhere = unpack_bits(target_mask)[: len(masked_target)]
    wrong = (~elsewhere & ((masked_target < 0) | (masked_target >= rows))).nonzero()
    if wrong.numel():
        token = int(wrong[0])
        raise InvalidArgument(
            f"masked_target[{token}] is {int(masked_target[token])}, expected 0 to {rows - 1} where target_mask is 0",
            "masked_target",
        )
