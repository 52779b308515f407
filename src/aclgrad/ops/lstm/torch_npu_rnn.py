"""torch_npu's older LSTM functions: one layer, one direction, the weights of a step in one matrix or in two.

Their columns are in blocks i, f, j, o as the rows of torch's weights are. All results are time-major; `h` and `c` hold
the states after every step. A sequence that has ended keeps its state, and its `y` is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dynamic_rnn import Order, Steps, called, gradients


def npu_lstm(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    seq_mask: Tensor,
    h: Tensor,
    c: Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    flag_seq: bool,
    direction: bool,
) -> Steps:
    """One layer of an LSTM in one direction: (y, h, c, i, j, f, o, tanhc), each [T, N, H].

    Shapes: `input` [T, N, I]; `weight` [I+H, 4H] = torch's (w_ih, w_hh) side by side, transposed; `bias` [4H], the sum
    of both; `h` and `c` [1, N, H]. With `flag_seq` the sequences end where `seq_mask` [T, N, …] is zero. `direction`
    says that time runs backwards. The other options have no effect. Differentiable, with respect to h and c in their
    final state.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> state, options = torch.ones(1, 2, 4), (True, 1, 0.0, True, False, False, False, False)
    >>> y, h, c, *gates = torch_npu.npu_lstm(
    ...     torch.ones(5, 2, 3), torch.zeros(7, 16), torch.zeros(16), torch.empty(0), state, state, *options)
    >>> y.shape, c[:, 0, 0]  # every gate is 0.5 and the candidate 0, so the cell state halves at each step
    (torch.Size([5, 2, 4]), tensor([0.5000, 0.2500, 0.1250, 0.0625, 0.0312]))
    """
    del has_biases, num_layers, dropout, train, bidirectional, batch_first  # they have no effect
    return called(input, weight, bias, seq_mask if flag_seq else None, h, c, direction)


def npu_lstm_data(
    input: Tensor,
    batch_sizes: Tensor,
    weight: Tensor,
    bias: Tensor,
    seq_mask: Tensor,
    h: Tensor,
    c: Tensor,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    flag_seq: bool,
    direction: bool,
) -> Steps:
    """`npu_lstm` for sequences of which `batch_sizes` [T] says how many have each step, as `seq_mask` does, too.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> mask, state = torch.ones(2, 2, 4), torch.ones(1, 2, 4)
    >>> options = (True, 1, 0.0, True, False, False, True, False)
    >>> mask[1, 1] = 0
    >>> y, h, c, *gates = torch_npu.npu_lstm_data(
    ...     torch.ones(2, 2, 3), torch.tensor([2, 1]), torch.zeros(7, 16), torch.zeros(16), mask, state, state,
    ...     *options)
    >>> c[-1, :, 0]
    tensor([0.2500, 0.5000])
    """
    del batch_sizes, has_biases, num_layers, dropout, train, bidirectional, batch_first  # they have no effect
    return called(input, weight, bias, seq_mask if flag_seq else None, h, c, direction)


def npu_lstm_backward(
    grady: Tensor | None,
    gradh: Tensor | None,
    gradc: Tensor | None,
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    hx: Tensor,
    cx: Tensor,
    y_output: Tensor,
    h_output: Tensor,
    c_output: Tensor,
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    tanhc: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients (input, weight, bias, h, c) of `npu_lstm` forward in time on sequences of one length.

    Shapes: those of the forward call; each of the first three [T, N, H] or None for zero, and of `gradh` and `gradc`
    only the last step counts.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> x, w, b, state = torch.ones(5, 2, 3), torch.zeros(7, 16), torch.zeros(16), torch.ones(1, 2, 4)
    >>> options = (True, 1, 0.0, True, False, False, False, False)
    >>> results = torch_npu.npu_lstm(x, w, b, torch.empty(0), state, state, *options)
    >>> gradients = torch_npu.npu_lstm_backward(torch.ones(5, 2, 4), None, None, x, w, b, state, state, *results)
    >>> [tuple(gradient.shape) for gradient in gradients]
    [(5, 2, 3), (7, 16), (16,), (1, 2, 4), (1, 2, 4)]
    """
    saved = (y_output, h_output, c_output, i, j, f, o, tanhc)
    return gradients(Order.of(input, None, False), (grady, gradh, gradc), input, weight, bias, hx, cx, saved)


def npu_lstm_data_backward(
    grady_opt: Tensor | None,
    gradh_opt: Tensor | None,
    gradc_opt: Tensor | None,
    input: Tensor,
    batch_sizes: Tensor,
    weight: Tensor,
    bias: Tensor,
    init_h: Tensor,
    init_c: Tensor,
    y: Tensor,
    h: Tensor,
    c: Tensor,
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    tanhc: Tensor,
    flag_direction: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients (input, weight, bias, h, c) of `npu_lstm_data`.

    Shapes: those of the forward call. Of `gradh_opt` and `gradc_opt` [T, N, H] only the final state counts: the last
    step, or the first one with `flag_direction`.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> x, sizes, w, b = torch.ones(2, 2, 3), torch.tensor([2, 1]), torch.zeros(7, 16), torch.zeros(16)
    >>> mask, state = torch.tensor([[1.0, 1.0], [1.0, 0.0]])[..., None].expand(2, 2, 4), torch.ones(1, 2, 4)
    >>> results = torch_npu.npu_lstm_data(
    ...     x, sizes, w, b, mask, state, state, True, 1, 0.0, True, False, False, True, False)
    >>> _, _, _, dh, dc = torch_npu.npu_lstm_data_backward(
    ...     None, None, torch.ones(2, 2, 4), x, sizes, w, b, state, state, *results, False)
    >>> dc[..., 0]
    tensor([[0.2500, 0.5000]])
    """
    batch = torch.arange(input.shape[1], device=batch_sizes.device)
    mask = (batch_sizes[:, None] > batch).to(input.device)
    order, saved = Order.of(input, mask, flag_direction), (y, h, c, i, j, f, o, tanhc)
    return gradients(order, (grady_opt, gradh_opt, gradc_opt), input, weight, bias, init_h, init_c, saved)


def npu_lstm_cell(
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    h: Tensor,
    c: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Steps:
    """One step of an LSTM: (y, h, c, i, j, f, o, tanhc), h and c [N, H], the others [1, N, H].

    Shapes: `input` [N, I]; `w_ih` [I, 4H] and `w_hh` [H, 4H], torch's weights transposed; `h`, `c` [N, H]; the biases
    [4H], both or none. Differentiable.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> y, h, c, *gates = torch_npu.npu_lstm_cell(
    ...     torch.ones(2, 3), torch.zeros(3, 16), torch.zeros(4, 16), torch.ones(2, 4), torch.ones(2, 4))
    >>> y.shape, c[0]
    (torch.Size([1, 2, 4]), tensor([0.5000, 0.5000, 0.5000, 0.5000]))
    """
    weight = torch.cat([w_ih, w_hh])
    bias = weight.new_zeros(weight.shape[1]) if b_ih is None or b_hh is None else b_ih + b_hh
    y, hy, cy, *saved = called(input[None], weight, bias, None, h[None], c[None], False)
    i, j, f, o, tanhc = saved
    return y, hy[0], cy[0], i, j, f, o, tanhc


def npu_lstm_cell_backward(
    grady: Tensor | None,
    gradh: Tensor | None,
    gradc: Tensor | None,
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    h: Tensor,
    c: Tensor,
    y_output: Tensor,
    h_output: Tensor,
    c_output: Tensor,
    i: Tensor,
    j: Tensor,
    f: Tensor,
    o: Tensor,
    tanhc: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients (input, w_ih, w_hh, b_ih, b_hh, h, c) of `npu_lstm_cell`.

    Shapes: those of the forward call; `grady` [1, N, H], `gradh` and `gradc` [N, H], each None for zero.

    >>> import torch
    >>> from aclgrad import torch_npu
    >>> operands = torch.ones(2, 3), torch.zeros(3, 16), torch.zeros(4, 16), torch.ones(2, 4), torch.ones(2, 4)
    >>> results = torch_npu.npu_lstm_cell(*operands)
    >>> gradients = torch_npu.npu_lstm_cell_backward(None, None, torch.ones(2, 4), *operands, *results)
    >>> [tuple(gradient.shape) for gradient in gradients]
    [(2, 3), (3, 16), (4, 16), (16,), (16,), (2, 4), (2, 4)]
    """
    weight = torch.cat([w_ih, w_hh])
    upstream = (grady, *(None if gradient is None else gradient[None] for gradient in (gradh, gradc)))
    saved = (y_output, h_output[None], c_output[None], i, j, f, o, tanhc)
    order = Order.of(input[None], None, False)
    dx, dw, db, dh, dc = gradients(
        order, upstream, input[None], weight, weight.new_empty(weight.shape[1]), h[None], c[None], saved
    )
    return dx[0], dw[: len(w_ih)], dw[len(w_ih) :], db, db, dh[0], dc[0]
