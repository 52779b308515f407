"""torch_npu's names: signatures as on Ascend, results as torch computes them."""

import inspect
import re

import pytest
import torch
from nn_helpers import tensors
from torch import nn

import aclgrad
from aclgrad import torch_npu
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

SIGNATURES = {
    "npu_fused_linear_online_max_sum": (
        "(input, weight, target, vocab_start_index, vocab_end_index, return_logits=False)"
    ),
    "npu_fused_cross_entropy_loss_with_max_sum": (
        "(logits_max, sum_exp_logits, predicted_logits, *, label_smoothing=0.0, input=None, weight=None, "
        "vocab_parallel_logits=None)"
    ),
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward": (
        "(grad, input, weight, target_mask, masked_target, label_smoothing=0.0, logits_max=None, sum_exp_logits=None, "
        "softmax=None)"
    ),
    "_lstm_npu": (
        "(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, *, batch_first=False, "
        "batch_sizes=None)"
    ),
    "_lstm_npu_backward": (
        "(grad_y, grad_hy, grad_cy, input, hx, params, i, j, f, o, h, c, tanhc, has_biases, num_layers, dropout, "
        "train, bidirectional, *, batch_first=False, batch_sizes=None)"
    ),
    "npu_lstm": (
        "(input, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout, train, bidirectional, batch_first, "
        "flag_seq, direction)"
    ),
    "npu_lstm_backward": (
        "(grady, gradh, gradc, input, weight, bias, hx, cx, y_output, h_output, c_output, i, j, f, o, tanhc)"
    ),
    "npu_lstm_data": (
        "(input, batch_sizes, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout, train, bidirectional, "
        "batch_first, flag_seq, direction)"
    ),
    "npu_lstm_data_backward": (
        "(grady_opt, gradh_opt, gradc_opt, input, batch_sizes, weight, bias, init_h, init_c, y, h, c, i, j, f, o, "
        "tanhc, flag_direction)"
    ),
    "npu_lstm_cell": "(input, w_ih, w_hh, h, c, b_ih=None, b_hh=None)",
    "npu_lstm_cell_backward": (
        "(grady, gradh, gradc, input, w_ih, w_hh, h, c, y_output, h_output, c_output, i, j, f, o, tanhc)"
    ),
    "batch_norm_reduce": "(input, eps)",
    "batch_norm_gather_stats_update": "(input, mean, invstd, running_mean, running_var, momentum, eps, counts)",
}
"""As op-plugin's `op_plugin_functions.yaml` publishes them."""
ALIASES = {
    "fused_linear_online_max_sum": "npu_fused_linear_online_max_sum",
    "fused_cross_entropy_loss_with_max_sum": "npu_fused_cross_entropy_loss_with_max_sum",
    "fused_linear_cross_entropy_loss_with_max_sum_grad": "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
}
BT, FEATURES, VOCABULARY = 19, 6, 24


@pytest.mark.parametrize(("name", "expected"), SIGNATURES.items(), ids=SIGNATURES)
def test_signatures(name, expected):
    signature = inspect.signature(getattr(torch_npu, name))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert re.sub(r" = ", "=", str(inspect.Signature(bare))) == expected


@pytest.mark.parametrize(("old", "new"), ALIASES.items(), ids=ALIASES)
def test_names_of_earlier_releases(old, new):
    assert getattr(torch_npu, old) is getattr(torch_npu, new)


def linear_layer(dtype):
    data = Data(dtype)
    return data.normal(BT, FEATURES), data.normal(VOCABULARY, FEATURES), data.integers(0, VOCABULARY, BT)


def staged(x, weight, target, grad, shards, keep_logits):
    """The loss and its gradients by `shards` processes, whose communication is done by hand."""
    rows = VOCABULARY // shards
    parts = [weight[k * rows : (k + 1) * rows] for k in range(shards)]
    local = [
        torch_npu.npu_fused_linear_online_max_sum(x, part, target, k * rows, (k + 1) * rows, keep_logits)
        for k, part in enumerate(parts)
    ]
    largest = torch.stack([top for top, *_ in local]).amax(0)
    total = sum(total * (top - largest).exp() for top, total, *_ in local)
    owned = [(target >= k * rows) & (target < (k + 1) * rows) for k in range(shards)]
    predicted = sum(
        (predicted + top - largest) * mine for (top, _, predicted, *_), mine in zip(local, owned, strict=True)
    )
    losses, dx, dw = [], 0, []
    for part, (_, _, _, mask, row, logits) in zip(parts, local, strict=True):
        loss, softmax = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
            largest, total, predicted, vocab_parallel_logits=logits
        )
        assert (softmax is None) == (not keep_logits)
        given = {"softmax": softmax} if keep_logits else {"logits_max": largest, "sum_exp_logits": total}
        share, shard_grad = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
            grad, x, part, mask, row, **given
        )
        losses.append(loss)
        dx = dx + share
        dw.append(shard_grad)
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    return losses[0], dx, torch.cat(dw)


def by_torch(x, weight, target, grad):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = nn.functional.cross_entropy(x @ weight.t(), target, reduction="none")
    return loss.detach(), *torch.autograd.grad(loss, [x, weight], grad.to(loss.dtype))


@pytest.mark.parametrize("keep_logits", [False, True], ids=["recomputed", "softmax kept"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_three_stages_are_cross_entropy(shards, keep_logits):
    x, weight, target = linear_layer(torch.float32)
    grad = Data(seed=1).normal(BT)
    results = staged(x, weight, target, grad, shards, keep_logits)
    truth = by_torch(x.double(), weight.double(), target, grad.double())
    naive = by_torch(x, weight, target, grad)
    for result, exact, rough in zip(results, truth, naive, strict=True):
        assert_within_baseline(result, exact, rough)


def test_the_first_stage_returns_six_and_packs_the_mask():
    x, weight, target = linear_layer(torch.bfloat16)
    top, total, predicted, mask, row, logits = torch_npu.npu_fused_linear_online_max_sum(x, weight, target, 0, 12, True)
    assert [t.dtype for t in (top, total, predicted)] == [torch.float32] * 3
    assert (mask.dtype, mask.shape) == (torch.uint8, ((BT + 7) // 8,))
    assert (row.dtype, logits.dtype, logits.shape) == (target.dtype, x.dtype, (BT, VOCABULARY))


@pytest.mark.parametrize("variable", [False, True], ids=["equal lengths", "variable lengths"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_lstm_is_torchs(variable, bidirectional):
    T, N, features, H, layers = 5, 3, 4, 6, 2
    torch.manual_seed(0)
    module = nn.LSTM(features, H, layers, bidirectional=bidirectional)
    chains = layers * (1 + bidirectional)
    data = Data()
    x = data.normal(T, N, features).requires_grad_()
    states = tuple(data.normal(chains, N, H).requires_grad_() for _ in range(2))
    lengths = torch.tensor([5, 3, 2]) if variable else None
    given = nn.utils.rnn.pack_padded_sequence(x, lengths) if variable else x
    expected, finals = module(given, states)
    if variable:
        expected, _ = nn.utils.rnn.pad_packed_sequence(expected)
    grads = [data.normal(*t.shape) for t in (expected, *finals)]
    wanted = [x, *states, *module.parameters()]
    gradients = torch.autograd.grad((expected, *finals), wanted, grads)

    params, options = [p.detach() for p in module.parameters()], (True, layers, 0.0, True, bidirectional)
    sizes = {"batch_sizes": given.batch_sizes} if variable else {}
    plain = x.detach().flatten(0, 1) if variable else x.detach()
    initial = [state.detach() for state in states]
    y, h, c, *saved = torch_npu._lstm_npu(plain, initial, params, *options, **sizes)
    torch.testing.assert_close((y, h, c), (expected, *finals))
    dx, dstates, dparams = torch_npu._lstm_npu_backward(*grads, plain, initial, params, *saved, *options, **sizes)
    results = tensors([dx.view(T, N, features), *dstates, *dparams])
    torch.testing.assert_close(results, list(gradients))


def test_without_training_nothing_is_saved():
    weights = [torch.zeros(16, 3), torch.zeros(16, 4)]
    states = [torch.zeros(1, 2, 4)] * 2
    _, _, _, *saved = torch_npu._lstm_npu(torch.ones(5, 2, 3), states, weights, False, 1, 0.0, False, False)
    assert saved == [None] * 7


def test_a_refusal_names_the_argument():
    x, weight, target = linear_layer(torch.float32)
    with pytest.raises(aclgrad.InvalidArgument, match="target") as caught:
        torch_npu.npu_fused_linear_online_max_sum(x, weight, target[:-1], 0, VOCABULARY)
    assert caught.value.argument == "target"
