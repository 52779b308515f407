"""The family under the names of torch_npu."""

from __future__ import annotations

from torch import Tensor

from .functional import cross_entropy_with_max_sum, linear_cross_entropy_backward, linear_online_max_sum

__all__ = [
    "fused_cross_entropy_loss_with_max_sum",
    "fused_linear_cross_entropy_loss_with_max_sum_grad",
    "fused_linear_online_max_sum",
    "npu_fused_cross_entropy_loss_with_max_sum",
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
    "npu_fused_linear_online_max_sum",
]


def npu_fused_linear_online_max_sum(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    return_logits: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """What rows [start, end) of a vocabulary contribute to the softmax of a linear layer.

    Shapes: `input` [BT, H] and `weight` [V, H] of one dtype, `target` [BT] int32 or int64. Returns (logits_max,
    sum_exp_logits, predicted_logits) float32 [BT]; target_mask uint8 [⌈BT/8⌉], a bit for each token whose target lies
    elsewhere; masked_target [BT], the target's row; vocab_parallel_logits [BT, V], or None if not asked for.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> top, total, predicted, mask, row, logits = torch_npu.npu_fused_linear_online_max_sum(
    ...     torch.eye(2, 4), torch.eye(3, 4), torch.tensor([101, 7]), 100, 103)
    >>> top, row, logits
    (tensor([1., 1.]), tensor([1, 0]), None)
    """
    return linear_online_max_sum(input, weight, target, vocab_start_index, vocab_end_index, return_logits=return_logits)


def npu_fused_cross_entropy_loss_with_max_sum(
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    predicted_logits: Tensor,
    *,
    label_smoothing: float = 0.0,
    input: Tensor | None = None,
    weight: Tensor | None = None,
    vocab_parallel_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(loss [BT], softmax [BT, V] or None): the latter if `vocab_parallel_logits` [BT, V] are given.

    Shapes: the three statistics [BT] float32, of the whole vocabulary. `input` and `weight` are not looked at.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> torch_npu.npu_fused_cross_entropy_loss_with_max_sum(torch.zeros(1), torch.tensor([4.0]), torch.zeros(1))
    (tensor([1.3863]), None)
    """
    return cross_entropy_with_max_sum(
        logits_max, sum_exp_logits, predicted_logits, label_smoothing, input, weight, vocab_parallel_logits
    )


def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    target_mask: Tensor,
    masked_target: Tensor,
    label_smoothing: float = 0.0,
    logits_max: Tensor | None = None,
    sum_exp_logits: Tensor | None = None,
    softmax: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(input_grad [BT, H], weight_grad [V, H]) for `grad` [BT], the gradient of the loss of every token.

    Give `softmax` [BT, V], or `logits_max` and `sum_exp_logits` [BT] to have it recomputed in bounded memory. The
    gradient of `input` is this shard's share: its sum over the processes is the whole.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> x, w, target = torch.eye(2, 4), torch.zeros(3, 4), torch.tensor([0, 2])
    >>> top, total, predicted, mask, row, _ = torch_npu.npu_fused_linear_online_max_sum(x, w, target, 0, 3)
    >>> dx, dw = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    ...     torch.ones(2), x, w, mask, row, logits_max=top, sum_exp_logits=total)
    >>> dw[:, :2]
    tensor([[-0.6667,  0.3333],
            [ 0.3333,  0.3333],
            [ 0.3333, -0.6667]])
    """
    return linear_cross_entropy_backward(
        grad, input, weight, target_mask, masked_target, label_smoothing, logits_max, sum_exp_logits, softmax
    )


fused_linear_online_max_sum = npu_fused_linear_online_max_sum
"""As earlier releases called it."""

fused_cross_entropy_loss_with_max_sum = npu_fused_cross_entropy_loss_with_max_sum
"""As earlier releases called it."""

fused_linear_cross_entropy_loss_with_max_sum_grad = npu_fused_linear_cross_entropy_loss_with_max_sum_backward
"""As earlier releases called it."""
