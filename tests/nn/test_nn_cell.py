"""What torch's documentation promises of nn.LSTMCell, kept by its twin."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, twin
from torch import nn

import aclgrad.nn
from aclgrad.testing.cases import Data

N, INPUT, HIDDEN = 3, 5, 7


def cell(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return nn.LSTMCell(INPUT, HIDDEN, **options).to(dtype)


def step(dtype=torch.float32, *batch, seed=0):
    return Data(dtype, seed).normal(*(batch or (N,)), INPUT).requires_grad_()


def states(dtype=torch.float32, *batch):
    data = Data(dtype, seed=1)
    return tuple(data.normal(*(batch or (N,)), HIDDEN).requires_grad_() for _ in range(2))


@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_outputs_and_all_gradients(dtype, bias, given):
    assert_same_as_torch(cell(dtype, bias=bias), step(dtype), *[states(dtype)] * given)


@pytest.mark.parametrize("given", [False, True], ids=["no states", "states"])
def test_one_input_without_a_batch_axis(given):
    module = cell()
    x = Data().normal(INPUT).requires_grad_()
    h, c = (Data(seed=k).normal(HIDDEN).requires_grad_() for k in (1, 2))
    results = assert_same_as_torch(module, x, *[(h, c)] * given)
    assert results[0].shape == results[1].shape == (HIDDEN,)


def test_an_empty_batch():
    results = assert_same_as_torch(cell(), step(torch.float32, 0))
    assert results[0].shape == (0, HIDDEN)


def test_steps_in_a_loop_are_an_lstm():
    module = cell()
    x = Data().normal(4, N, INPUT).requires_grad_()

    def run(module, x):
        state, outputs = None, []
        for t in range(4):
            state = module(x[t], state)
            outputs.append(state[0])
        return torch.autograd.grad(torch.stack(outputs).square().sum(), [x, *module.parameters()])

    assert_same_as_torch(module, x, run=run)


@pytest.mark.parametrize("frozen", ["weight_ih", "weight_hh", "bias_ih", "bias_hh"])
def test_some_parameters_are_frozen(frozen):
    module = cell()
    getattr(module, frozen).requires_grad_(False)
    assert_same_as_torch(module, step(), states())


@pytest.mark.parametrize("used", [0, 1], ids=["h", "c"])
def test_a_gradient_that_comes_through_one_result(used):
    def run(module, x, hx):
        return torch.autograd.grad(module(x, hx)[used].square().sum(), [x, *hx, *module.parameters()])

    assert_same_as_torch(cell(), step(), states(), run=run)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_first_and_second_derivatives_are_checked_by_differences(bias):
    module = twin(cell(torch.float64, bias=bias))
    names = [name for name, _ in module.named_parameters()]

    def call(x, h, c, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, (h, c)))

    arguments = (step(torch.float64), *states(torch.float64), *module.parameters())
    assert torch.autograd.gradcheck(call, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, arguments, fast_mode=True)


def test_a_gradient_penalty_trains_as_torchs_does():
    def run(module, x):
        (slope,) = torch.autograd.grad(module(x)[0].square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), module.parameters())

    assert_same_as_torch(cell(), step(), run=run)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_compute_the_same(copied):
    module = aclgrad.nn.LSTMCell(INPUT, HIDDEN)
    again = copied(module)
    assert type(again) is aclgrad.nn.LSTMCell and again.weight_ih is not module.weight_ih
    torch.testing.assert_close(again(step()), module(step()), rtol=0, atol=0)


def test_state_dict_goes_both_ways():
    theirs, ours = nn.LSTMCell(INPUT, HIDDEN), aclgrad.nn.LSTMCell(INPUT, HIDDEN)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(step()), theirs(step()))
    theirs.load_state_dict(ours.state_dict())
    assert repr(ours) == repr(theirs)


def test_to_dtype():
    module = twin(cell()).double()
    assert {t.dtype for t in module(step(torch.float64))} == {torch.float64}
