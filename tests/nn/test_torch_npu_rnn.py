"""torch_npu's older LSTM functions and its sums for batch norm: as torch computes them."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import aclgrad
from aclgrad import torch_npu
from aclgrad.testing.cases import Data

T, N, FEATURES, H = 5, 4, 3, 6
LENGTHS = torch.tensor([2, 5, 1, 4])  # of no order
MASK = (torch.arange(T)[:, None] < LENGTHS)[..., None].expand(T, N, H).float()
OPTIONS = (True, 1, 0.0, True, False, False)


def by_torch(reverse, lengths):
    """Operands of npu_lstm, what torch makes of them, upstream gradients, and the gradients of the operands."""
    torch.manual_seed(0)
    data, module = Data(), nn.LSTM(FEATURES, H, bidirectional=True)
    x = data.normal(T, N, FEATURES).requires_grad_()
    states = [data.normal(2, N, H).requires_grad_() for _ in range(2)]
    given = x if lengths is None else nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, finals = module(given, states)
    if lengths is not None:
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=T)
    way = slice(reverse, reverse + 1)
    results = [y[..., H:] if reverse else y[..., :H], *(final[way] for final in finals)]
    upstream = [data.normal(*result.shape) for result in results]
    end = "_l0_reverse" if reverse else "_l0"
    w_ih, w_hh, b_ih, b_hh = (getattr(module, name + end) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    dx, dw_ih, dw_hh, db, dh, dc = torch.autograd.grad(results, [x, w_ih, w_hh, b_ih, *states], upstream)
    weight, bias = torch.cat([w_ih, w_hh], 1).t().detach(), (b_ih + b_hh).detach()
    operands = [x.detach(), weight, bias, *(state[way].detach() for state in states)]
    return operands, results, upstream, [dx, torch.cat([dw_ih, dw_hh], 1).t(), db, dh[way], dc[way]]


@pytest.mark.parametrize("varies", [False, True], ids=["equal lengths", "variable lengths"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward in time"])
def test_npu_lstm(reverse, varies):
    """Results, their gradients by autograd, and by the functions that are called for them."""
    operands, expected, upstream, gradients = by_torch(reverse, LENGTHS if varies else None)
    x, weight, bias, h0, c0 = (operand.requires_grad_() for operand in operands)
    sizes = MASK[..., 0].sum(1).long() if varies else torch.full((T,), N)
    results = torch_npu.npu_lstm(x, weight, bias, MASK, h0, c0, *OPTIONS, varies, reverse)
    data = torch_npu.npu_lstm_data(x, sizes, weight, bias, MASK, h0, c0, *OPTIONS, varies, reverse)
    assert all(torch.equal(one, other) for one, other in zip(results, data, strict=True))
    assert [result.shape for result in results] == [(T, N, H)] * 8
    final = 0 if reverse else -1
    y, h, c, *saved = results
    ends = y, h[final][None], c[final][None]
    assert_close(list(ends), expected)
    assert_close(list(torch.autograd.grad(ends, [x, weight, bias, h0, c0], upstream)), gradients)

    whole = [upstream[0], *(torch.zeros(T, N, H) for _ in range(2))]
    for given, of_state in zip(whole[1:], upstream[1:], strict=True):
        given[final] = of_state[0]
    plain = [value.detach() for value in (x, weight, bias, h0, c0, y, h, c, *saved)]
    if varies:  # in order of their lengths, which is what the sizes of batches can say
        order = LENGTHS.argsort(descending=True)
        along = [value.index_select(1, order) if value.dim() == 3 else value for value in plain]
        whole, gradients = [value[:, order] for value in whole], list(gradients)
        for k in (0, 3, 4):
            gradients[k] = gradients[k][:, order]
        answer = torch_npu.npu_lstm_data_backward(*whole, along[0], sizes, *along[1:], reverse)
    elif reverse:
        answer = torch_npu.npu_lstm_data_backward(*whole, plain[0], sizes, *plain[1:], reverse)
    else:
        answer = torch_npu.npu_lstm_backward(*whole, *plain)
    assert_close(list(answer), list(gradients))


def test_npu_lstm_cell():
    torch.manual_seed(0)
    data, module = Data(), nn.LSTMCell(FEATURES, H)
    x, h0, c0 = (data.normal(N, width).requires_grad_() for width in (FEATURES, H, H))
    expected = module(x, (h0, c0))
    upstream = [data.normal(N, H) for _ in range(2)]
    wanted = [x, module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh, h0, c0]
    gradients = torch.autograd.grad(expected, wanted, upstream)
    w_ih, w_hh = module.weight_ih.t(), module.weight_hh.t()
    y, h, c, *saved = torch_npu.npu_lstm_cell(x, w_ih, w_hh, h0, c0, module.bias_ih, module.bias_hh)
    assert_close((h, c), expected)
    assert torch.equal(y[0], h)
    assert [value.shape for value in (y, *saved)] == [(1, N, H)] * 6
    assert_close(torch.autograd.grad((h, c), wanted, upstream), gradients)
    plain = [value.detach() for value in (x, w_ih, w_hh, h0, c0, y, h, c, *saved)]
    dx, dw_ih, dw_hh, *others = torch_npu.npu_lstm_cell_backward(None, *upstream, *plain)
    assert_close((dx, dw_ih.t(), dw_hh.t(), *others), gradients)
    bare = torch_npu.npu_lstm_cell(*plain[:5])
    cell = nn.LSTMCell(FEATURES, H, bias=False)
    cell.load_state_dict({name: value for name, value in module.state_dict().items() if "weight" in name})
    assert_close(tuple(bare[1:3]), cell(x, (h0, c0)))


def test_refusals_name_the_argument():
    state, weight, bias = torch.zeros(1, N, H), torch.zeros(FEATURES + H, 4 * H), torch.zeros(4 * H)
    x = torch.zeros(T, N, FEATURES)
    for message, given, mask in (
        (r"input has shape \[4, 3\]", x[0], MASK),
        (r"seq_mask has shape \[4, 4, 6\]", x, MASK[1:]),
        ("seq_mask has steps behind the end", x, MASK.flip(0)),
    ):
        with pytest.raises(aclgrad.InvalidArgument, match=message):
            torch_npu.npu_lstm(given, weight, bias, mask, state, state, *OPTIONS, True, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_norm_over_sums(dtype):
    """Two processes' parts have the statistics of the whole, and move the running ones as torch does."""
    data = Data()
    x = (data.normal(9, 5, 2) + 3).to(dtype)
    parts = x[:4], x[4:]
    of_parts = [torch_npu.batch_norm_reduce(part, 1e-5) for part in parts]
    sums, squares = (torch.stack([each[k] for each in of_parts]) for k in range(2))
    running = [torch.zeros(5), torch.ones(5)]
    module = nn.BatchNorm1d(5, eps=1e-3, momentum=0.3, dtype=torch.float64)
    module(x.double())
    mean, invstd = torch_npu.batch_norm_gather_stats_update(
        parts[0], sums, squares, *running, 0.3, 1e-3, torch.tensor([float(p.numel() // 5) for p in parts])
    )
    exact = x.double().transpose(0, 1).flatten(1)
    assert_close(mean.double(), exact.mean(1), rtol=1e-6, atol=1e-6)
    assert_close(invstd.double(), (exact.var(1, correction=0) + 1e-3).rsqrt(), rtol=1e-5, atol=0)
    assert_close([value.double() for value in running], [module.running_mean, module.running_var], rtol=1e-5, atol=0)
    with pytest.raises(aclgrad.InvalidArgument, match=r"mean has shape \[2, 5\], expected \[1, 5\]"):
        torch_npu.batch_norm_gather_stats_update(x, sums, squares, None, None, 0.1, 0.0, torch.ones(1))
    with pytest.raises(aclgrad.InvalidArgument, match="input has shape"):
        torch_npu.batch_norm_reduce(torch.zeros(3), 0.0)
