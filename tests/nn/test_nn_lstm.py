"""What torch's documentation promises of nn.LSTM, kept by its twin."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, twin
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import aclgrad.nn
from aclgrad.ops.lstm import spec
from aclgrad.testing.cases import Data

T, N, INPUT, HIDDEN = 6, 3, 5, 7
LENGTHS = [4, 1, 6]  # sorting them is not its own inverse

VARIANTS = {
    "plain": {},
    "no bias": {"bias": False},
    "layers": {"num_layers": 3},
    "both directions": {"bidirectional": True},
    "layers, both directions": {"num_layers": 2, "bidirectional": True},
    "all of it": {"num_layers": 2, "bidirectional": True, "bias": False, "batch_first": True},
}


def lstm(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return nn.LSTM(INPUT, HIDDEN, **options).to(dtype)


def sequences(dtype=torch.float32, batch_first=False, batch=N):
    shape = (batch, T, INPUT) if batch_first else (T, batch, INPUT)
    return Data(dtype).normal(*shape).requires_grad_()


def states(module, batch=N, dtype=torch.float32):
    chains = module.num_layers * (1 + module.bidirectional)
    data = Data(dtype, seed=1)
    return tuple(data.normal(chains, *[batch] * (batch is not None), HIDDEN).requires_grad_() for _ in range(2))


def packed(dtype=torch.float32, lengths=LENGTHS):
    """Packed, with a differentiable data tensor."""
    x = Data(dtype).normal(T, len(lengths), INPUT)
    made = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    return made._replace(data=made.data.detach().requires_grad_())


@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_outputs_and_all_gradients(options, dtype, given):
    module = lstm(dtype, **options)
    arguments = [sequences(dtype, module.batch_first)] + [states(module, dtype=dtype)] * given
    assert_same_as_torch(module, *arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_dtypes(dtype):
    module = lstm(dtype)
    results = assert_same_as_torch(module, sequences(dtype), states(module, dtype=dtype))
    assert {result.dtype for result in results} == {dtype}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
def test_one_sequence_without_a_batch_axis(batch_first, given):
    module = lstm(num_layers=2, bidirectional=True, batch_first=batch_first)
    x = sequences()[:, 0].detach().requires_grad_()
    output, h, c, *_ = assert_same_as_torch(module, x, *[states(module, None)] * given)
    assert output.shape == (T, 2 * HIDDEN)
    assert h.shape == c.shape == (4, HIDDEN)


@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_packed_sequences_of_any_order(options, given):
    module = lstm(**options)
    assert_same_as_torch(module, packed(), *[states(module)] * given)


def test_packed_sequences_sorted_and_padded_again():
    module = lstm()
    rows = [Data(seed=k).normal(length, INPUT) for k, length in enumerate(sorted(LENGTHS, reverse=True))]
    given = pack_sequence(rows)
    assert given.unsorted_indices is None
    output, (h, _) = twin(module)(given)
    assert isinstance(output, PackedSequence) and output.unsorted_indices is None
    padded, lengths = pad_packed_sequence(output)
    assert lengths.tolist() == sorted(LENGTHS, reverse=True)
    for n, length in enumerate(lengths):
        alone, (h_alone, _) = twin(module)(rows[n])
        torch.testing.assert_close(padded[:length, n], alone)
        torch.testing.assert_close(h[:, n], h_alone)
        assert not padded[length:, n].any()


def test_a_packed_result_has_the_order_of_its_input():
    given = packed()
    output, _ = twin(lstm())(given)
    assert torch.equal(output.batch_sizes, given.batch_sizes)
    assert torch.equal(output.sorted_indices, given.sorted_indices)
    assert torch.equal(output.unsorted_indices, given.unsorted_indices)


@pytest.mark.parametrize("make", [sequences, packed], ids=["batch", "packed"])
@pytest.mark.parametrize("options", [{"bidirectional": True}, {"num_layers": 3}], ids=["2x2", "3"])
def test_dropout_of_the_same_seed_drops_the_same_values(make, options):
    module = lstm(**{"num_layers": 2, "dropout": 0.4, **options})
    assert_same_as_torch(module, make(), states(module), seed=3)


def test_dropout_batch_first():
    module = lstm(num_layers=2, dropout=0.4, batch_first=True)
    assert_same_as_torch(module, sequences(batch_first=True), seed=3)


def test_dropout_is_off_in_evaluation():
    module = lstm(num_layers=2, dropout=0.4)
    without = copy.deepcopy(module)
    without.dropout = 0.0
    torch.testing.assert_close(twin(module).eval()(sequences())[0], without(sequences())[0])


def test_one_layer_with_dropout_warns_as_torch_does():
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        aclgrad.nn.LSTM(INPUT, HIDDEN, dropout=0.5)


@pytest.mark.parametrize("steps", [1, 2])
def test_short_sequences(steps):
    assert_same_as_torch(lstm(bidirectional=True), Data().normal(steps, N, INPUT).requires_grad_())


def test_an_empty_batch():
    results = assert_same_as_torch(lstm(num_layers=2), sequences(batch=0))
    assert results[0].shape == (T, 0, HIDDEN)


def test_a_strided_input():
    x = Data().normal(N, INPUT, T).requires_grad_()
    module = lstm()
    expected = module(x.permute(2, 0, 1))[0]
    torch.testing.assert_close(twin(module)(x.permute(2, 0, 1))[0], expected)


@pytest.mark.parametrize("frozen", ["weight_ih_l0", "weight_hh_l1", "bias_ih_l0", "weight", "_l0", "_l1"])
def test_some_parameters_are_frozen(frozen):
    module = lstm(num_layers=2)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(frozen not in name)
    assert_same_as_torch(module, sequences())


@pytest.mark.parametrize("frozen", ["_l0", "_l1"])
def test_packed_sequences_through_frozen_layers(frozen):
    module = lstm(num_layers=3, bidirectional=True)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(frozen not in name)
    data = Data()
    packed = pack_sequence([data.normal(length, INPUT) for length in LENGTHS], enforce_sorted=False)
    assert_same_as_torch(module, packed)


def test_a_frozen_layer_below_all_others_has_no_backward_pass(monkeypatch):
    module = twin(lstm(num_layers=3))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("_l0" not in name)
    calls = []
    real = spec.lstm_backward.run
    monkeypatch.setattr(spec.lstm_backward, "run", lambda args: calls.append(args) or real(args))
    module(Data().normal(T, N, INPUT))[0].sum().backward()
    assert len(calls) == 2
    assert all((p.grad is None) == ("_l0" in name) for name, p in module.named_parameters())


def test_everything_is_frozen_but_an_initial_state():
    module = lstm().requires_grad_(False)
    h, c = states(module)
    assert_same_as_torch(module, sequences().detach(), (h, c.detach()))


@pytest.mark.parametrize("used", ["output", "h", "c"])
def test_a_gradient_that_comes_through_one_result(used):
    def run(module, x):
        output, (h, c) = module(x)
        chosen = {"output": output, "h": h, "c": c}[used]
        return torch.autograd.grad(chosen.square().sum(), [x, *module.parameters()])

    assert_same_as_torch(lstm(), sequences(), run=run)


@pytest.mark.parametrize("trained", [0, 1], ids=["h", "c"])
def test_one_of_the_states_is_trained(trained):
    module = lstm(num_layers=2)
    given = [state.detach().requires_grad_(k == trained) for k, state in enumerate(states(module))]
    assert_same_as_torch(module, sequences(), tuple(given))


def test_nothing_is_kept_where_no_gradient_is_wanted():
    module = twin(lstm())
    with torch.no_grad():
        quiet = module(sequences())
    watched = module(sequences())
    assert quiet[0].grad_fn is None and watched[0].grad_fn is not None
    torch.testing.assert_close(quiet, watched, rtol=0, atol=0)


def test_flatten_parameters_changes_nothing():
    module = twin(lstm())
    before = module(sequences())
    module.flatten_parameters()
    torch.testing.assert_close(module(sequences()), before, rtol=0, atol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_compute_the_same_and_are_independent(copied):
    module = aclgrad.nn.LSTM(INPUT, HIDDEN, num_layers=2)
    again = copied(module)
    assert type(again) is aclgrad.nn.LSTM
    torch.testing.assert_close(again(sequences()), module(sequences()), rtol=0, atol=0)
    with torch.no_grad():
        again.weight_ih_l0.zero_()
    assert module.weight_ih_l0.any()


def test_to_dtype_moves_the_weights_that_are_used():
    module = twin(lstm()).double()
    assert module(sequences(torch.float64))[0].dtype == torch.float64
    back = module.float()
    torch.testing.assert_close(back(sequences()), twin(lstm())(sequences()), rtol=0, atol=0)


def test_state_dict_goes_both_ways():
    theirs, ours = nn.LSTM(INPUT, HIDDEN, 2, bidirectional=True), aclgrad.nn.LSTM(INPUT, HIDDEN, 2, bidirectional=True)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(sequences()), theirs(sequences()))
    with torch.no_grad():
        ours.weight_hh_l1.mul_(2)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(sequences()), theirs(sequences()))


def test_the_same_seed_draws_the_same_parameters():
    torch.manual_seed(5)
    theirs = nn.LSTM(INPUT, HIDDEN)
    torch.manual_seed(5)
    ours = aclgrad.nn.LSTM(INPUT, HIDDEN)
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    assert repr(ours) == repr(theirs)


def test_a_replaced_parameter_is_used():
    """As weight normalisation and functional calls replace them."""
    module = twin(lstm())
    zeros = {name: torch.zeros_like(value) for name, value in module.named_parameters()}
    output, _ = torch.func.functional_call(module, zeros, (sequences(),))
    assert not output.any()


def test_gradients_are_checked_by_differences():
    module = twin(lstm(torch.float64))
    x, (h, c) = sequences(torch.float64), states(module, dtype=torch.float64)
    names = [name for name, _ in module.named_parameters()]

    def call(x, h, c, *parameters):
        output, (hy, cy) = torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, (h, c)))
        return output, hy, cy

    assert torch.autograd.gradcheck(call, (x, h, c, *module.parameters()), fast_mode=True)


def test_the_graph_can_be_used_twice_where_it_is_kept():
    module, x = twin(lstm()), sequences()
    loss = module(x)[0].sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, x), first, rtol=0, atol=0)


def test_a_result_without_gradients_is_deterministic():
    module = lstm(num_layers=2, bidirectional=True)
    first, second = (outputs_and_gradients(twin(module), sequences()) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
