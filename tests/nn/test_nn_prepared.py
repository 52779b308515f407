"""Calls that were seen before: what is known of them is not found out again, and nothing that may differ is taken over.

Their cost is counted in calls of Python functions, which do not vary as time does.
"""

import copy
import sys

import pytest
import torch

import aclgrad
from aclgrad import nn
from aclgrad.core import known
from aclgrad.ops.linear_cross_entropy import head

N, H, V = 8, 16, 40


def python_calls(call):
    """How many Python functions a call runs, those of torch's among them; the second time, when it is known."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    for _ in range(3):
        call()
    threaded = torch.autograd.is_multithreading_enabled()
    torch.autograd.set_multithreading_enabled(False)  # the backward pass in this thread
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        torch.autograd.set_multithreading_enabled(threaded)
    return count


def made(*, bias=False, **options):
    return nn.LinearCrossEntropyLoss(H, V, bias=bias, **options)


def drawn(*shape):
    return torch.randn(*shape, H), torch.randint(V, shape)


def step(module, x, target):
    return torch.autograd.grad(module(x, target), [x, *module.parameters()])


def test_a_planned_call_takes_few_steps_of_python():
    grad, x = torch.randn(4, 2), torch.randn(4, 2)
    assert python_calls(lambda: aclgrad.hardsigmoid_backward(grad, x)) <= 30


def test_a_known_step_of_the_head_takes_few_steps_of_python():
    module, (x, target) = made(), drawn(N)
    assert python_calls(lambda: step(module, x.requires_grad_(), target)) <= 130


def test_a_known_loss_alone_takes_few_steps_of_python():
    module, (x, target) = made().requires_grad_(False), drawn(N)
    assert python_calls(lambda: module(x, target)) <= 60


@pytest.fixture
def unchecked(monkeypatch):
    """Fails whoever checks or reads metadata again."""

    def again(*_, **__):
        raise AssertionError("found out again")

    def forbid():
        monkeypatch.setattr(head, "checked", again)
        monkeypatch.setattr(known, "fingerprint", again)

    return forbid


@pytest.mark.parametrize("shape", [(N,), (2, 4), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_a_known_call_is_not_checked_again(shape, bias, training, unchecked):
    module = made(bias=bias).requires_grad_(training)
    new, targets = drawn(*shape)
    truth = copy.deepcopy(module).double()(new.double(), targets)
    for _ in range(2):  # the second is of a known plan, too
        x, target = drawn(*shape)
        loss = module(x.requires_grad_(training), target)
        if training:
            torch.autograd.grad(loss, [x, *module.parameters()])
    unchecked()
    loss = module(new.requires_grad_(training), targets)
    torch.testing.assert_close(loss.double(), truth, rtol=1e-6, atol=0)
    if training:
        assert torch.autograd.grad(loss, new)[0].shape == new.shape


def test_a_known_call_of_a_module_is_found_by_the_module(monkeypatch):
    module, (x, target) = made(bias=True, label_smoothing=0.1, z_loss=0.01), drawn(N)
    given = x, target
    losses = [module(*given) for _ in range(2)]
    monkeypatch.setattr(sys.modules[type(module).__module__], "linear_cross_entropy", None)
    assert torch.equal(module(*given), losses[0])


def test_what_a_known_call_is_given_is_looked_at():
    module, (x, target) = made(), drawn(N)
    x.requires_grad_()
    loss = module(x, target)
    target[3] = V
    with pytest.raises(aclgrad.InvalidArgument, match=r"target\[3\] is 40"):
        module(x, target)
    target[3] = -100
    assert module(x, target) != loss
    module.label_smoothing = 2.0
    with pytest.raises(aclgrad.InvalidArgument, match="label_smoothing is 2"):
        module(x, target)


def test_gradients_are_those_that_are_wanted_now():
    module, (x, target) = made(), drawn(N)
    module(x.requires_grad_(), target).backward()
    module.linear.weight.requires_grad_(False)
    module.linear.weight.grad = None
    module(x, target).backward()
    assert module.linear.weight.grad is None
    assert not module(x.detach(), target).requires_grad
    with torch.no_grad():
        assert not module(x, target).requires_grad


def test_autocast_is_seen_by_a_known_call():
    module, (x, target) = made(), drawn(N)
    x.requires_grad_()
    exact = [module(x, target) for _ in range(2)][1]
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x, target) != exact
    assert module(x, target) == exact


def test_a_tensor_that_was_written_to_is_refused():
    module, (x, target) = made(), drawn(N)
    for _ in range(2):
        loss = module(x.clone().requires_grad_(), target)
    loss = module(x, target)
    with torch.no_grad():
        module.linear.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("wanted", ["token_weight", "normalizer"])
def test_a_known_call_is_differentiated_by_what_else_it_was_given(wanted):
    module, (x, target) = made(), drawn(N)
    numbers = {"token_weight": torch.rand(N) + 1, "normalizer": torch.tensor(5.0)}
    numbers[wanted].requires_grad_()
    for _ in range(2):
        (found,) = torch.autograd.grad(module(x.requires_grad_(), target, **numbers), numbers[wanted])
    exact = {name: value.detach().double() for name, value in numbers.items()}
    exact[wanted].requires_grad_()
    losses = torch.nn.functional.cross_entropy(x.double() @ module.linear.weight.double().t(), target, reduction="none")
    loss = (losses * exact["token_weight"]).sum() / exact["normalizer"]
    torch.testing.assert_close(found.double(), torch.autograd.grad(loss, exact[wanted])[0], rtol=1e-5, atol=1e-7)
