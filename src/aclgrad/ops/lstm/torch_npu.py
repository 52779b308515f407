"""The family under the names of torch_npu."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .composed import COMPOSED as COMPOSED
from .functional import LstmResults, lstm, lstm_backward
from .torch_npu_rnn import (
    npu_lstm,
    npu_lstm_backward,
    npu_lstm_cell,
    npu_lstm_cell_backward,
    npu_lstm_data,
    npu_lstm_data_backward,
)

__all__ = [
    "_lstm_npu",
    "_lstm_npu_backward",
    "npu_lstm",
    "npu_lstm_backward",
    "npu_lstm_cell",
    "npu_lstm_cell_backward",
    "npu_lstm_data",
    "npu_lstm_data_backward",
]


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
) -> LstmResults:
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
