"""Small calls of modules, which torch's own operations serve: as exact, as refusing, and differentiable as often."""

import copy
import random

import pytest
import torch

import aclgrad.nn
from aclgrad.core.errors import AclgradError
from aclgrad.ops._shared import small
from aclgrad.testing import assert_within_baseline


@pytest.fixture(params=[True, False], ids=["small", "own kernels"])
def served(request, monkeypatch):
    monkeypatch.setattr(small, "enabled", request.param)
    return request.param


def loss_and_gradients(module, inputs, **given):
    wanted = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    found = module(*inputs, **given)
    first = found[0] if isinstance(found, tuple) else found
    grads = torch.autograd.grad((first * first).sum(), [*wanted, *module.parameters()])
    return [first.detach(), *grads]


def drawn(seed):
    """(module, inputs) of sizes drawn at random."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    n, h, v = (draw.randint(1, most) for most in (40, 70, 90))
    x = torch.randn(n, h, generator=generator) * draw.choice([0.1, 1.0, 10.0])
    kind = draw.choice(["Hardsigmoid", "LSTMCell", "head"])
    if kind == "Hardsigmoid":
        return aclgrad.nn.Hardsigmoid(), [x]
    torch.manual_seed(seed)
    if kind == "LSTMCell":
        return aclgrad.nn.LSTMCell(h, v, bias=draw.random() < 0.5), [x]
    target = torch.randint(v, (n,), generator=generator)
    target[draw.randrange(n)] = -100
    target[0] = 0
    weight = torch.rand(v, generator=generator) if draw.random() < 0.5 else None
    return aclgrad.nn.LinearCrossEntropyLoss(
        h, v, bias=draw.random() < 0.5, weight=weight, reduction=draw.choice(["mean", "sum", "none"]),
        label_smoothing=draw.choice([0.0, 0.1]),
    ), [x, target]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_either_way_is_as_exact(seed, monkeypatch):
    """Confident heads are among them, where torch itself would not be."""
    module, inputs = drawn(seed)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    naive = None
    for served in (True, False):
        monkeypatch.setattr(small, "enabled", served)
        found = loss_and_gradients(module, [x.clone() for x in inputs])
        naive = naive or found  # torch's own is the naive run
        truth = loss_and_gradients(copy.deepcopy(module).double(), [x.clone() for x in wide])
        for result, true, plain in zip(found, truth, naive, strict=True):
            assert_within_baseline(result, true, plain)


def test_torch_serves_what_is_small_alone(monkeypatch):
    monkeypatch.setattr(small, "enabled", True)
    head = aclgrad.nn.LinearCrossEntropyLoss(8, 9)
    x, target = torch.randn(4, 8), torch.randint(9, (4,))

    def graph(loss):
        return loss.grad_fn.name()

    assert "NllLoss" in graph(head(x, target))
    for other in (
        lambda: head.bfloat16()(x.bfloat16(), target),
        lambda: head.float()(x, target.int()),
        lambda: head(x, target, normalizer=3.0),
        lambda: head(torch.randn(1 << 18, 8), torch.randint(9, (1 << 18,))),
    ):
        assert "NllLoss" not in graph(other())
    assert "Hardsigmoid" in graph(aclgrad.nn.Hardsigmoid()(x.requires_grad_()))
    assert "aclgrad" not in str(torch.fx.experimental.proxy_tensor.make_fx(lambda x: x)(x).code)


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


head = aclgrad.nn.linear_cross_entropy
X, W, T = torch.randn(4, 8), torch.randn(9, 8), torch.randint(9, (4,))
CELL = aclgrad.nn.LSTMCell(8, 3)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: aclgrad.nn.Hardsigmoid()(X.to(torch.complex64)), "complex64"),
        (lambda: aclgrad.nn.Hardsigmoid()(X.to_sparse()), "sparse"),
        (lambda: CELL(torch.randn(4, 7)), "7"),
        (lambda: CELL(X, torch.randn(4, 3)), "Tensor"),
        (lambda: CELL(X.double()), "float64"),
        (lambda: head(X, W, T + 9), "expected 0 to 8"),
        (lambda: head(X, W, T - 20), "-"),
        (lambda: head(X, W, T[:3]), "3"),
        (lambda: head(X.view(2, 2, 8), W, T), "4"),
        (lambda: head(X, W[0], T), "8"),
        (lambda: head(X, W.double(), T), "float32"),
        (lambda: head(X, W, T, reduction="all"), "all"),
        (lambda: head(X, W, T, label_smoothing=2.0), "2.0"),
        (lambda: head(X, W, T, label_smoothing=True), "bool"),
        (lambda: head(X, W, T, ignore_index=True), "True"),
        (lambda: head(X, W, T, weight=torch.ones(8)), "8"),
        (lambda: head(X, W, T, weight=torch.ones(9, requires_grad=True)), "requires a gradient"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(call, found, monkeypatch):
    messages = []
    for served in (True, False):
        monkeypatch.setattr(small, "enabled", served)
        with pytest.raises(AclgradError, match=found) as refused:
            call()
        messages.append(str(refused.value))
    assert messages[0] == messages[1]


def test_every_reduction_and_shape(served):
    x, target = torch.randn(2, 3, 8), torch.randint(9, (2, 3))
    target[1, 1] = 4
    for reduction in ("none", "mean", "sum"):
        found = head(x, W, target, reduction=reduction, ignore_index=4, weight=torch.rand(9))
        assert found.shape == (target.shape if reduction == "none" else ())
    assert torch.equal(head(x, W, target, reduction="none", ignore_index=4) == 0, target == 4)
    assert head(x[:0], W, target[:0]).isnan()
