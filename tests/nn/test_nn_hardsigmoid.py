"""What torch's documentation promises of nn.Hardsigmoid, kept by its twin."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, twin
from torch import nn

import aclgrad.nn
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data


def values(dtype=torch.float32, *shape):
    """Across both corners, and on them."""
    x = Data(dtype).normal(*(shape or (4, 65)), scale=3.0)
    x.view(-1)[:2] = torch.tensor([-3.0, 3.0], dtype=dtype)
    return x.requires_grad_()


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_output_and_gradient(dtype, inplace):
    module = nn.Sequential(nn.Identity(), nn.Hardsigmoid(inplace=inplace))

    def run(module, x):
        y = module(x * 1)  # a value that is no leaf may be overwritten
        (gradient,) = torch.autograd.grad((y.double() ** 2).sum(), x)
        return [y.detach(), gradient]

    assert_same_as_torch(module, values(dtype), run=run)


@pytest.mark.parametrize("rank", [8, 9, 12])
def test_any_rank_in_strides_that_do_not_merge(rank):
    x = Data().normal(*[3] * rank)[(slice(2),) * rank].permute(*reversed(range(rank)))
    assert_same_as_torch(nn.Hardsigmoid(), x.detach().requires_grad_())
    torch.testing.assert_close(aclgrad.hardsigmoid(x), nn.functional.hardsigmoid(x))
    written = x.clone()
    assert aclgrad.nn.Hardsigmoid(inplace=True)(written) is written
    torch.testing.assert_close(written, nn.functional.hardsigmoid(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
def test_integers_are_refused_as_torch_does_but_for_int32(dtype):
    x = torch.arange(-4, 5).to(dtype)
    with pytest.raises(NotImplementedError):
        nn.Hardsigmoid()(x)
    if dtype == torch.int32:
        assert aclgrad.nn.Hardsigmoid()(x).tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1]
        return
    with pytest.raises(aclgrad.InvalidArgument, match=r"x is \w+, expected one of"):
        aclgrad.nn.Hardsigmoid()(x)


def test_float64_is_exact_where_torchs_slope_is_a_float32():
    def formula(x):
        y = (x / 6 + 0.5).clamp(0, 1)
        return y, (x.abs() < 3) / torch.tensor(6.0, dtype=x.dtype)

    x = values(torch.float64)
    y = aclgrad.nn.Hardsigmoid()(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    for result, truth, naive in zip((y.detach(), slope), formula(x.detach()), formula(x.detach().float()), strict=True):
        assert_within_baseline(result, truth, naive)


def test_in_place_without_gradients_returns_the_input():
    x = values().detach()
    expected = nn.functional.hardsigmoid(x)
    y = aclgrad.nn.Hardsigmoid(inplace=True)(x)
    assert y is x
    torch.testing.assert_close(x, expected)


def test_in_place_with_gradients_returns_the_input():
    x = values() * 2
    y = aclgrad.nn.Hardsigmoid(inplace=True)(x)
    assert y is x and x.grad_fn is not None


def test_in_place_of_a_view_changes_what_it_is_a_view_of():
    def run(module, x):
        whole = x * 1
        module(whole[1:])
        (gradient,) = torch.autograd.grad(whole.square().sum(), x)
        return [whole.detach(), gradient]

    assert_same_as_torch(nn.Hardsigmoid(inplace=True), values(), run=run)


def test_in_place_of_what_another_gradient_needs_is_refused():
    x = values()
    y = x.exp()
    aclgrad.nn.Hardsigmoid(inplace=True)(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("trained", [True, False])
def test_in_place_of_a_leaf(trained):
    x = values().detach().requires_grad_(trained)
    module = aclgrad.nn.Hardsigmoid(inplace=True)
    if trained:
        with pytest.raises(RuntimeError, match="leaf"):
            module(x)
    with torch.no_grad():
        assert module(x) is x


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 3, 4, 5)])
def test_any_shape(shape):
    x = Data().normal(*shape).requires_grad_()
    assert_same_as_torch(nn.Hardsigmoid(), x)


def test_a_transposed_input():
    x = values().detach().t()
    torch.testing.assert_close(aclgrad.nn.Hardsigmoid()(x), nn.Hardsigmoid()(x))


def test_differentiable_any_number_of_times():
    x = Data(torch.float64).uniform(-2.5, 2.5, 9).requires_grad_()
    module = aclgrad.nn.Hardsigmoid()
    assert torch.autograd.gradcheck(module, (x,))
    assert torch.autograd.gradgradcheck(lambda x: module(x) ** 2, (x,))
    third = module(x) ** 3
    for _ in range(3):
        (third,) = torch.autograd.grad(third.sum(), x, create_graph=True)
    torch.testing.assert_close(third, torch.full_like(x, 6 / 6**3))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_keep_the_option(copied):
    again = copied(aclgrad.nn.Hardsigmoid(inplace=True))
    assert type(again) is aclgrad.nn.Hardsigmoid and again.inplace
    assert repr(again) == repr(nn.Hardsigmoid(inplace=True))


def test_a_model_of_before_the_option_existed():
    """torch keeps no parameter, so a state_dict is empty."""
    assert not twin(nn.Hardsigmoid()).state_dict()
