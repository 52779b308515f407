"""What torch's documentation promises of nn.SyncBatchNorm, kept by its twin in one process."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, several_steps, twin
from torch import nn
from torch.utils.checkpoint import checkpoint

import aclgrad.nn
from aclgrad.testing.cases import Data

CHANNELS = 3


def norm(**options):
    """With parameters and statistics that are not those of the start."""
    module = nn.SyncBatchNorm(CHANNELS, **options)
    data = Data(seed=1)
    for parameter in module.parameters():
        parameter.data = data.normal(CHANNELS)
    if module.track_running_stats:
        module.running_mean.copy_(data.normal(CHANNELS))
        module.running_var.copy_(data.uniform(0.5, 2.0, CHANNELS))
    return module


def batch(dtype=torch.float32, *rest, seed=0):
    return (Data(dtype, seed).normal(6, CHANNELS, *(rest or (5, 2))) * 2 + 1).detach().requires_grad_()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.7, "eps": 0.1}],
    ids=["plain", "not affine", "no running statistics", "cumulative", "momentum and eps"],
)
def test_outputs_gradients_and_running_statistics(options, training):
    module = norm(**options).train(training)
    assert_same_as_torch(module, *(batch(seed=seed) for seed in range(3)), run=several_steps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_with_float_parameters(dtype):
    results = assert_same_as_torch(norm(), batch(dtype))
    assert [result.dtype for result in results] == [dtype, dtype, torch.float32, torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_to_dtype(dtype):
    assert_same_as_torch(norm().to(dtype), batch(dtype), batch(dtype, seed=1), run=several_steps)


@pytest.mark.parametrize("rest", [(), (1,), (4,), (2, 3, 4), (2, 1, 3, 2, 1, 2, 2), (2,) * 8], ids=len)
def test_ranks(rest):
    x = Data().normal(6, CHANNELS, *rest).requires_grad_()
    assert_same_as_torch(norm(), x)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_channels_last_stays_so(training):
    x = batch().detach().to(memory_format=torch.channels_last).requires_grad_()
    module = norm().train(training)
    assert_same_as_torch(module, x)
    ours = twin(module)(x)
    assert ours.stride() == x.stride()
    (gradient,) = torch.autograd.grad(ours.square().sum(), x)
    assert gradient.stride() == x.stride()


@pytest.mark.parametrize("frozen", [("weight",), ("bias",), ("weight", "bias")])
def test_frozen_parameters(frozen):
    module = norm()
    for name in frozen:
        getattr(module, name).requires_grad_(False)
    assert_same_as_torch(module, batch())


def test_an_input_without_a_gradient():
    assert_same_as_torch(norm(), batch().detach())


def test_gradients_are_checked_by_differences():
    module = twin(norm(track_running_stats=False).double())
    names = [name for name, _ in module.named_parameters()]

    def call(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, (batch(torch.float64), *module.parameters()))


@pytest.mark.parametrize("shape", [(1, CHANNELS), (1, CHANNELS, 1, 1)])
def test_one_value_per_channel(shape):
    x = Data().normal(*shape)
    for module in (norm(), twin(norm())):
        with pytest.raises(ValueError, match=r"more than (1|one) value per channel"):
            module(x)
    torch.testing.assert_close(twin(norm()).eval()(x), norm().eval()(x))


def test_an_empty_batch():
    x = torch.zeros(0, CHANNELS, 4)
    theirs, ours = norm(), twin(norm())
    assert ours(x).shape == theirs(x).shape
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), equal_nan=True)


def test_batches_are_counted():
    module = twin(norm())
    for _ in range(3):
        module(batch())
    assert module.num_batches_tracked == 3
    module.eval()(batch())
    assert module.num_batches_tracked == 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_compute_the_same_and_are_independent(copied):
    module = twin(norm())
    again = copied(module)
    assert type(again) is aclgrad.nn.SyncBatchNorm
    torch.testing.assert_close(again(batch()), module(batch()), rtol=0, atol=0)
    again(batch())
    assert (again.num_batches_tracked, module.num_batches_tracked) == (2, 1)


def test_state_dict_goes_both_ways():
    theirs, ours = norm(), aclgrad.nn.SyncBatchNorm(CHANNELS)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours.eval()(batch()), theirs.eval()(batch()))
    theirs.load_state_dict(ours.state_dict())
    assert repr(ours) == repr(theirs)


def test_convert_sync_batchnorm_then_convert():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    assert type(aclgrad.nn.convert(model)[1]) is aclgrad.nn.SyncBatchNorm


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("eps", [1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("deviation", [0.0, 1e-6, 1e-4, 1e-2, 1.0, 100.0])
def test_a_variance_far_below_eps_is_remembered(deviation, eps, dtype):
    x = (Data(torch.float64).normal(64, CHANNELS) * deviation).to(dtype).requires_grad_()
    module = norm(eps=eps, momentum=1.0).to(torch.promote_types(dtype, torch.float32))
    assert_same_as_torch(module, x, run=several_steps)


def test_checkpointed():
    """What is computed again in the backward pass is given out once."""
    ours, x = aclgrad.nn.SyncBatchNorm(3), torch.randn(8, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(ours(x).square().sum(), x)
    (found,) = torch.autograd.grad(checkpoint(ours, x, use_reentrant=False).square().sum(), x)
    torch.testing.assert_close(found, expected)
