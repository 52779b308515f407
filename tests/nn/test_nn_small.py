"""Small calls of modules, which torch's own operations serve: as exact, as refusing, and differentiable as often."""

import contextlib
import copy
import random

import pytest
import torch
from nn_helpers import assert_refused_in_the_same_words

import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.testing import assert_within_baseline


@pytest.fixture(params=[True, False], ids=["small", "own kernels"])
def served(request, monkeypatch):
    monkeypatch.setattr(small, "enabled", request.param)
    return request.param


def value_and_gradients(module, x):
    found = module(x.requires_grad_())
    first = found[0] if isinstance(found, tuple) else found
    return [first.detach(), *torch.autograd.grad((first * first).sum(), [x, *module.parameters()])]


def drawn(seed):
    """(module, input) of sizes drawn at random."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    n, features, units = (draw.randint(1, most) for most in (40, 70, 90))
    x = torch.randn(n, features, generator=generator) * draw.choice([0.1, 1.0, 10.0])
    if draw.random() < 0.3:
        return aclgrad.nn.Hardsigmoid(), x
    torch.manual_seed(seed)
    return aclgrad.nn.LSTMCell(features, units, bias=draw.random() < 0.5), x


@pytest.mark.parametrize("seed", range(20))
def test_either_way_is_as_exact(seed, monkeypatch):
    module, x = drawn(seed)
    naive = None
    for served in (True, False):
        monkeypatch.setattr(small, "enabled", served)
        found = value_and_gradients(module, x.clone())
        naive = naive or found  # torch's own is the naive run
        truth = value_and_gradients(copy.deepcopy(module).double(), x.double())
        for result, true, plain in zip(found, truth, naive, strict=True):
            assert_within_baseline(result, true, plain)


def test_torch_serves_what_is_small_and_exact_alone(monkeypatch):
    monkeypatch.setattr(small, "enabled", True)
    cell, x = aclgrad.nn.LSTMCell(8, 9), torch.randn(4, 8)

    def node(module, x):
        found = module(x.requires_grad_())
        return type((found[0] if isinstance(found, tuple) else found).grad_fn).__name__

    assert node(aclgrad.nn.Hardsigmoid(), x) == "HardsigmoidBackward0"
    assert node(aclgrad.nn.Hardsigmoid(), x.double().detach()) == "hardsigmoidBackward"
    ours = node(cell, torch.randn(1 << 19, 8))
    assert node(cell, x) != ours == node(copy.deepcopy(cell).bfloat16(), x.bfloat16().detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_hardsigmoid_in_every_dtype(dtype, served):
    edges = torch.tensor([-3.0, 3.0, torch.inf, -torch.inf, torch.nan, -0.0, 1e-40])
    x = torch.cat([torch.randn(1000) * 2, edges, edges.nextafter(torch.tensor(0.0))]).to(dtype)
    line = (x.double() + 3).clamp(0, 6) / 6
    upstream = torch.randn(len(x)).to(dtype)
    slope = torch.where((x > -3) & (x < 3), upstream.double() / 6, 0.0)
    value = aclgrad.nn.Hardsigmoid()(x.requires_grad_())
    (grad,) = torch.autograd.grad(value, x, upstream)
    for result, truth in ((value.detach(), line), (grad, slope)):
        assert_within_baseline(result, truth, truth.to(dtype if dtype != torch.float64 else torch.float32))


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
CELL = aclgrad.nn.LSTMCell(8, 3)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: aclgrad.nn.Hardsigmoid()(X.to(torch.complex64)), "complex64"),
        (lambda: aclgrad.nn.Hardsigmoid()(X.to_sparse()), "sparse"),
        (lambda: CELL(torch.randn(4, 7)), "7"),
        (lambda: CELL(X, torch.randn(4, 3)), "Tensor"),
        (lambda: CELL(X.double()), "float64"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(call, found, monkeypatch):
    assert_refused_in_the_same_words(call, found, monkeypatch)


def packed():
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor)


TWICE = {
    "Hardsigmoid": aclgrad.nn.Hardsigmoid(),
    "Hardsigmoid in place": torch.nn.Sequential(torch.nn.Linear(8, 8), aclgrad.nn.Hardsigmoid(inplace=True)),
    "LSTMCell": CELL,
    "BatchNorm1d": aclgrad.nn.BatchNorm1d(8, track_running_stats=False),
}


@pytest.mark.parametrize("saving", [contextlib.nullcontext, packed], ids=["plain", "packed"])
@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name, saving, served):
    module, x = TWICE[name], X.clone().requires_grad_()

    def second(module, x, saving):
        with saving():
            found = module(x)
        y = found[0] if isinstance(found, tuple) else found
        (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    if name == "BatchNorm1d" and served:  # torch's own is right in the second derivative
        assert type(module(x).grad_fn).__name__ == "NativeBatchNormBackward0"
    if name != "BatchNorm1d":  # what is mapped does not say that a gradient is wanted outside
        torch.testing.assert_close(second(torch.func.vmap(module), x, saving), second(module, x, saving))
    truth = second(copy.deepcopy(module).double(), X.double().requires_grad_(), contextlib.nullcontext)
    torch.testing.assert_close(second(module, x, saving), truth.float(), rtol=1e-4, atol=1e-5)
