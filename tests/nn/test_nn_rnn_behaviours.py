"""What users of torch's recurrent modules count on, beyond numbers: what torch's own suite holds its LSTM to."""

import copy
import itertools

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, twin
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import aclgrad.nn
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

T, N, INPUT, HIDDEN = 5, 3, 4, 6
OPTIONS = [
    {"num_layers": layers, "bidirectional": both, "proj_size": proj}
    for layers, both, proj in itertools.product((1, 2), (False, True), (0, 3))
]
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch on its own way


def lstm(**options):
    torch.manual_seed(0)
    return nn.LSTM(INPUT, HIDDEN, **options)


def x():
    return Data().normal(T, N, INPUT).requires_grad_()


def zeros(module):
    chains = module.num_layers * (1 + module.bidirectional)
    return tuple(torch.zeros(chains, N, size) for size in (module.proj_size or HIDDEN, HIDDEN))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_absent_states_are_zeros_to_the_last_bit(options):
    module = twin(lstm(**options))
    without, given = (outputs_and_gradients(module, x(), *hx) for hx in ((), (zeros(module),)))
    for one, other in zip(without, given, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("options", OPTIONS[::3], ids=str)
def test_a_packed_batch_is_its_sequences_one_by_one(options):
    module, data, lengths = twin(lstm(**options)).double(), x().detach().double(), [2, 5, 1]
    output, states = module(pack_padded_sequence(data, torch.tensor(lengths), enforce_sorted=False))
    padded, found = pad_packed_sequence(output)
    assert found.tolist() == lengths
    for n, length in enumerate(lengths):
        alone, finals = module(data[:length, n : n + 1])
        torch.testing.assert_close(padded[:length, n], alone[:, 0], rtol=1e-12, atol=1e-14)
        assert not padded[length:, n].any(), "past the end of a sequence there are zeros"
        for state, final in zip(states, finals, strict=True):
            torch.testing.assert_close(state[:, n], final[:, 0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", OPTIONS[::3], ids=str)
def test_states_that_do_not_lie_one_after_another(options):
    module = lstm(**options)
    spread = tuple(
        Data(seed=2).normal(N, 2 * state.shape[2], state.shape[0]).permute(2, 0, 1)[..., ::2].requires_grad_()
        for state in zeros(module)
    )
    assert not spread[0].is_contiguous()
    assert_same_as_torch(module, x(), spread)


def test_weight_norm_and_back():
    """By a parametrisation, forward, backward and when it is taken off; torch's LSTM would keep its old weight."""
    plain, normed = twin(lstm()), twin(lstm())
    parametrizations.weight_norm(normed, "weight_hh_l0", dim=0)
    assert {"weight_ih_l0", "parametrizations.weight_hh_l0.original0"} <= set(dict(normed.named_parameters()))
    torch.testing.assert_close(normed(x())[0], plain(x())[0])
    with torch.no_grad():
        normed.parametrizations.weight_hh_l0.original0.mul_(2)
        plain.weight_hh_l0.mul_(2)
    torch.testing.assert_close(normed(x())[0], plain(x())[0])
    normed(x())[0].sum().backward()
    assert normed.parametrizations.weight_hh_l0.original0.grad.any()
    parametrize.remove_parametrizations(normed, "weight_hh_l0")
    torch.testing.assert_close(normed(x())[0], plain(x())[0])


def test_pruned_weights_stay_pruned():
    module, theirs = twin(lstm()), lstm()
    for pruned in (module, theirs):
        prune.random_unstructured(pruned, "weight_ih_l0", amount=0.5)
    mask = module.weight_ih_l0_mask
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(module.weight_ih_l0)
    assert (module.weight_ih_l0 == 0).equal(mask == 0)
    output, _ = module(x())
    output.sum().backward()
    assert not module.weight_ih_l0_orig.grad[mask == 0].any()
    prune.remove(module, "weight_ih_l0")
    torch.testing.assert_close(module(x())[0], output)


@pytest.mark.filterwarnings("ignore:dropout option adds")
@pytest.mark.parametrize("p", [0.0, 0.3, 0.7, 1.0])
def test_dropout_drops_that_share_between_layers(p):
    """Of weights of one, so that the second layer shows how much of the first has come through; p may change later."""
    module = aclgrad.nn.LSTM(1, 500, num_layers=2, dropout=1.0 - p)
    module.dropout = p
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.bias_ih_l0.fill_(20.0)  # every h of the first layer is tanh(1)
        module.weight_ih_l1[2 * 500 : 3 * 500].copy_(torch.eye(500))  # candidate: what arrives of it
    _, (_, c) = module(torch.ones(1, 1, 1))
    arrived = 1.0 - (c[1] == 0).double().mean().item()
    assert abs(arrived - (1 - p)) <= 5 * (p * (1 - p) / 500) ** 0.5, "five standard deviations"
    repeated, before = module.eval()(torch.ones(1, 1, 1)), module(torch.ones(1, 1, 1))
    torch.testing.assert_close(repeated, before, rtol=0, atol=0)


def test_the_graph_is_kept_where_it_is_asked_for():
    module = twin(lstm(num_layers=2, bidirectional=True))
    leaf = x()
    output = module(leaf)[0].sum()
    first = torch.autograd.grad(output, leaf, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(output, leaf)[0], first, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(output, leaf)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (1, 2)], ids=str)
def test_only_some_results_have_gradients(used):
    def run(module, leaf):
        output, (h, c) = module(leaf)
        chosen = [(output, h, c)[k] for k in used]
        return torch.autograd.grad(sum(value.square().sum() for value in chosen), [leaf, *module.parameters()])

    module, leaf = lstm(bidirectional=True), x()
    truth = run(copy.deepcopy(module).double(), leaf.detach().double().requires_grad_())
    for ours, theirs, exact in zip(run(twin(module), leaf), run(module, leaf), truth, strict=True):
        assert_within_baseline(ours, exact, theirs)


def test_what_a_module_says_of_itself():
    for options in OPTIONS:
        theirs, ours = lstm(**options), twin(lstm(**options))
        assert repr(ours) == repr(theirs)
        assert [[tuple(w.shape) for w in layer] for layer in ours.all_weights] == [
            [tuple(w.shape) for w in layer] for layer in theirs.all_weights
        ]
        assert list(ours.state_dict()) == list(theirs.state_dict())
        ours.reset_parameters()
        assert all(p.abs().max() <= HIDDEN**-0.5 for p in ours.parameters())


@pytest.mark.parametrize("batch_first", [False, True])
def test_wrong_ranks_and_sizes_are_refused_before_anything_is_computed(batch_first):
    module = aclgrad.nn.LSTM(INPUT, HIDDEN, batch_first=batch_first)
    good = torch.zeros(N, T, INPUT) if batch_first else torch.zeros(T, N, INPUT)
    state = torch.zeros(1, N, HIDDEN)
    for arguments, named in (
        ((good[..., :-1],), "input"),
        ((good[0, 0],), "input"),
        ((good[None],), "input"),
        ((good, (state[:, :-1], state)), r"hx\[0\]"),
        ((good, (state, state[..., :-1])), r"hx\[1\]"),
        ((good, (state[0], state[0])), r"hx\[0\]"),
        ((good[0], (state, state)), r"hx\[0\]"),
        ((good, state), "hx"),
        ((good, (state,)), "hx"),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=named):
            module(*arguments)
