"""Calls that were seen before: what is known of them is not found out again, and nothing that may differ is taken over.

Their cost is counted in calls of Python functions, which do not vary as time does.
"""

import copy
import sys
from threading import Thread

import pytest
import torch

import aclgrad
from aclgrad import nn
from aclgrad.core import known
from aclgrad.ops._shared import small
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
    assert python_calls(lambda: aclgrad.hardsigmoid_backward(grad, x)) <= 22


def test_a_planned_pair_takes_few_steps_of_python():
    grad, x, out = torch.randn(4, 2), torch.randn(4, 2), torch.empty(4, 2)

    def pair():
        size, executor, _ = aclgrad.aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, out)
        assert aclgrad.aclnn.aclnnHardsigmoidBackward(None, size, executor, None) == 0

    assert python_calls(pair) <= 55


def test_a_known_step_of_a_cell_in_half_precision_takes_few_steps_of_python():
    module = nn.LSTMCell(H, 8).bfloat16()
    x, state = torch.randn(N, H).bfloat16().requires_grad_(), torch.randn(N, 8).bfloat16()
    leaves = [x, *module.parameters()]
    assert python_calls(lambda: torch.autograd.grad(module(x, (state, state))[0].sum(), leaves)) <= 170


@pytest.mark.parametrize("training", [True, False])
def test_a_step_of_a_small_batch_norm_takes_few_steps_of_python(training, monkeypatch):
    monkeypatch.setattr(small, "enabled", True)
    module, x = nn.BatchNorm1d(H).train(training), drawn(N)[0].requires_grad_()
    assert python_calls(lambda: torch.autograd.grad(module(x).sum(), [x, *module.parameters()])) <= 62


def test_a_known_step_of_the_head_takes_few_steps_of_python():
    module, (x, target) = made(), drawn(N)
    assert python_calls(lambda: step(module, x.requires_grad_(), target)) <= 110


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
@pytest.mark.parametrize(("bias", "weighs"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_known_call_is_not_checked_again(shape, bias, weighs, training, dtype, unchecked):
    module = made(bias=bias).requires_grad_(training).to(dtype)
    new, targets = drawn(*shape)
    new = new.to(dtype)
    weights = torch.rand(2, *shape).to(dtype) if weighs else [None, None]
    truth = copy.deepcopy(module).double()(new.double(), targets, None if not weighs else weights[1].double())
    for _ in range(2):  # the second is of a known plan, too
        x, target = drawn(*shape)
        x = x.to(dtype)
        loss = module(x.requires_grad_(training), target, weights[0])
        if training:
            torch.autograd.grad(loss, [x, *module.parameters()])
    unchecked()
    loss = module(new.requires_grad_(training), targets, weights[1])
    torch.testing.assert_close(loss.double(), truth, rtol=1e-6, atol=0)
    if training:
        leaves = [new, *module.parameters()]
        assert [g.dtype for g in torch.autograd.grad(loss, leaves)] == [dtype] * len(leaves)


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


LOSSES = {
    "class weights": ({"weight": torch.rand(V)}, {}),
    "normalizer": ({}, {"normalizer": 5.0}),
    "differentiated normalizer": ({}, {"normalizer": torch.tensor(5.0, requires_grad=True)}),
    "statistics": ({"return_stats": True}, {}),
    "sum": ({"reduction": "sum"}, {}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_may_be_written_over(name):
    """As `loss /= steps` does where gradients of several steps are added."""
    options, given = LOSSES[name]
    module, (x, target) = made(**options), drawn(N)
    leaves = [x.requires_grad_(), *module.parameters()]
    leaves += [value for value in given.values() if isinstance(value, torch.Tensor)]
    compiled = [torch.compile(module, fullgraph=True, backend="aot_eager")] if name == "statistics" else []
    for call in (module, module, *compiled):
        found = []
        for divided in (torch.div, torch.Tensor.div_):
            result = call(x, target, **given)
            loss = result[0] if isinstance(result, tuple) else result
            found.append(torch.autograd.grad(divided(loss, 4), leaves))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_two_threads_do_not_share_the_gradients_that_came_with_a_loss(monkeypatch):
    """Another backward pass over a graph that is kept comes between any two lines of this one."""
    module, (x, target) = made(), drawn(N)
    loss = module(x.requires_grad_(), target)
    asked, others = torch.is_grad_enabled, []

    def slope():
        return torch.autograd.grad(loss, x, torch.tensor(3.0), retain_graph=True)[0]

    def between():
        monkeypatch.setattr(torch, "is_grad_enabled", asked)
        thread = Thread(target=lambda: others.append(slope()))
        thread.start()
        thread.join()
        return asked()

    monkeypatch.setattr(torch, "is_grad_enabled", between)
    found = slope()
    assert found.data_ptr() != others[0].data_ptr()
    for gradient in (found, *others):
        torch.testing.assert_close(gradient, slope(), rtol=1e-6, atol=1e-8)
