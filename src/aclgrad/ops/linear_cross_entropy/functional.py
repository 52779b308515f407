"""The family's functions."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ...core.errors import InvalidArgument
from . import spec
from .reference import unpack_bits


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
