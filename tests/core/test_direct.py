"""Differentiable operators past torch's dispatcher: only where nobody else has to know, and to the same gradients."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from aclgrad.core.autograd import Gradient
from aclgrad.core.direct import past_dispatcher
from aclgrad.core.registry import lookup

SLOPE = lookup("hardsigmoid_backward")


def _setup(ctx, inputs, output):
    ctx.shape = output.shape
    ctx.save_for_backward(inputs[1])


def _backward(ctx, upstream):
    (x,) = ctx.saved_tensors
    return slope(upstream, x), None


slope = past_dispatcher(SLOPE, Gradient(_setup, _backward))


class Watched(TorchDispatchMode):
    """Somebody who wants to know of every op."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.fixture
def arguments():
    return torch.randn(6), torch.linspace(-4, 4, 6)


@pytest.fixture
def past(monkeypatch):
    """Where the calls went: past the dispatcher or not."""
    seen, launched = [], type(SLOPE).launched

    def launch(operator, *given):
        seen.append(operator.spec.name)
        return launched(operator, *given)

    monkeypatch.setattr(type(SLOPE), "launched", launch)

    class Op:
        def __call__(self, *given):
            seen.append("op")
            return op(*given)

        def __getattr__(self, name):
            return getattr(op, name)

    op = torch.ops.aclgrad.hardsigmoid_backward
    monkeypatch.setattr(torch.ops.aclgrad, "hardsigmoid_backward", Op())
    return seen


def test_values_in_memory_go_past_the_dispatcher(arguments, past):
    grad, x = arguments
    for wanted in (False, True):
        found = slope(grad.clone().requires_grad_(wanted), x)
        assert found.requires_grad == wanted
    assert past == ["hardsigmoid_backward"] * 2


def in_a_mode(grad, x):
    with Watched():
        return slope(grad, x)


WATCHED = {
    "a mode": in_a_mode,
    "vmap": lambda grad, x: torch.func.vmap(slope)(grad[None], x[None]),
    "vmap of something else": lambda grad, x: torch.func.vmap(lambda i: slope(grad, x) + i)(torch.zeros(2)),
    "forward mode": lambda grad, x: torch.func.jvp(lambda grad: slope(grad, x), (grad,), (grad,)),
    "traced": lambda grad, x: make_fx(slope)(grad, x),
    "a subclass": lambda grad, x: slope(grad.as_subclass(type("Named", (torch.Tensor,), {})), x),
    "negated": lambda grad, x: slope(torch.complex(grad, grad).conj().imag, x),
    "no memory": lambda grad, x: slope(grad.to("meta"), x.to("meta")),
}


@pytest.mark.parametrize("name", WATCHED)
def test_whoever_has_to_know_is_told(name, arguments, past):
    slope(*arguments)
    del past[:]
    WATCHED[name](*arguments)
    assert past[0] == "op"


@pytest.mark.parametrize("saved", [False, True], ids=["kept", "computed again"])
def test_gradients_are_those_of_the_op_as_often_as_wanted(saved, arguments):
    grad, x = arguments
    found = []
    for call in (slope, torch.ops.aclgrad.hardsigmoid_backward):
        given = grad.clone().requires_grad_()
        y = checkpoint(call, given, x, use_reentrant=False) if saved else call(given, x)
        (first,) = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        found.append([y, first, *torch.autograd.grad(first.square().sum(), given)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_a_graph_that_is_kept_is_gone_through_again(arguments):
    grad, x = arguments[0].requires_grad_(), arguments[1]
    loss = slope(grad, x).sum()
    first, second = (torch.autograd.grad(loss, grad, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_what_was_written_over_is_refused(arguments):
    grad, x = arguments[0].requires_grad_(), arguments[1]
    loss = slope(grad, x).sum()
    x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_wrong_call_is_refused_in_words(arguments):
    grad, x = arguments
    with pytest.raises(ValueError, match="x has shape"):
        slope(grad, x[1:])
