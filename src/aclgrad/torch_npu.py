"""torch_npu's functions on any machine: the same names, argument order, defaults and results.

Code written for Ascend runs here with `import aclgrad.torch_npu as torch_npu`, to be debugged or tested. The names of
earlier releases are there too. None of the functions is differentiable, as on Ascend: one of them is the gradient of
the others. For training there is `aclgrad.nn`.

A vocabulary split over processes goes through the first three in order, with the caller's communication in between:
the largest of all `logits_max`; every process's `sum_exp_logits` times exp(its own maximum − the largest), and the same
difference added to `predicted_logits` where the process owns the target; then the sums of both over the processes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .ops.linear_cross_entropy import (
    cross_entropy_with_max_sum,
    linear_cross_entropy_backward,
    linear_online_max_sum,
)
from .ops.lstm import lstm, lstm_backward

Saved = list[Tensor] | None


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


def _lstm_npu(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    batch_first: bool = False,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Saved, Saved, Saved, Saved, Saved, Saved, Saved]:
    """What `torch.nn.LSTM` calls on Ascend: (y, h, c, i, j, f, o, h_all, c_all, tanhc), see `aclgrad.lstm`.

    Shapes, with D directions: `input` [T, N, I], with `batch_first` [N, T, I], with `batch_sizes` [T] padded [T·N, I];
    `hx` (h, c), each [D·num_layers, N, H]. y is [T, N, D·H] or [N, T, D·H]; the seven lists, None without `train`, hold
    a tensor [T, N, H] for each layer and direction.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> states, weights = (torch.ones(1, 2, 4),) * 2, [torch.zeros(16, 3), torch.zeros(16, 4)]
    >>> y, h, c, *saved = torch_npu._lstm_npu(torch.ones(5, 2, 3), states, weights, False, 1, 0.0, True, False)
    >>> y.shape, h.shape, len(saved)
    (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]), 7)
    """
    return lstm(input, params, hx, batch_sizes, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _lstm_npu_backward(
    grad_y: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    i: Sequence[Tensor],
    j: Sequence[Tensor],
    f: Sequence[Tensor],
    o: Sequence[Tensor],
    h: Sequence[Tensor],
    c: Sequence[Tensor],
    tanhc: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    *,
    batch_first: bool = False,
    batch_sizes: Tensor | None = None,
) -> tuple[Tensor | None, list[Tensor | None], list[Tensor] | None]:
    """Gradients (dx, [dh0, dc0], dparams) of `_lstm_npu`, from the seven lists that it returned.

    Shapes are those of the forward call; a gradient of None counts as zero. With `batch_sizes`, `grad_y` is [T, N, D·H]
    as the forward call returned y, or already [T·N, D·H].

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> x, states = torch.ones(5, 2, 3), (torch.ones(1, 2, 4),) * 2
    >>> weights, options = [torch.zeros(16, 3), torch.zeros(16, 4)], (False, 1, 0.0, True, False)
    >>> y, h, c, *saved = torch_npu._lstm_npu(x, states, weights, *options)
    >>> dx, (dh0, dc0), dweights = torch_npu._lstm_npu_backward(
    ...     torch.ones_like(y), None, None, x, states, weights, *saved, *options)
    >>> dx.shape, dh0.shape, len(dweights)
    (torch.Size([5, 2, 3]), torch.Size([1, 2, 4]), 2)
    """
    if batch_sizes is not None and isinstance(grad_y, Tensor) and grad_y.dim() == 3:
        grad_y = grad_y.flatten(0, 1)
    dx, dh0, dc0, dparams = lstm_backward(
        input, hx, params, grad_y, grad_hy, grad_cy, i, j, f, o, h, c, tanhc, batch_sizes,
        has_biases, num_layers, dropout, train, bidirectional, batch_first,
    )  # fmt: skip
    return dx, [dh0, dc0], dparams
