"""No function drops a gradient: it gives the right one, or says that there is none."""

import pytest
import torch

import aclgrad
from aclgrad import aclnn
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import lookup, operators, part
from aclgrad.testing.cases import suite
from aclgrad.testing.layouts import apply

OPERATORS = list(operators())


def known(operator):
    """Whether the family says how; else it is by the textbook."""
    return operator.spec.name in getattr(part(operator.spec.package, "autograd"), "GRADIENTS", {})


PURE = [operator.spec.name for operator in OPERATORS if not operator.spec.updated]

by_name = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)


def first_case(operator, dtype=torch.float32):
    return list(suite(operator.spec).cases[0].build(dtype))


def watched(operator, arguments, leaves):
    """The arguments as results of a computation, which may be written over; `leaves` gathers what it began with."""

    def follow(tensor):
        if not tensor.is_floating_point():
            return tensor
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1] * 1

    return [
        value if k in operator.spec.updated and operator.spec.outs else apply(follow, value)
        for k, value in enumerate(arguments)
    ]


def outcome(operator, arguments):
    results = getattr(aclgrad, operator.spec.name, operator)(*arguments)
    return tensors_in([results, *(arguments[k] for k in operator.spec.updated)])


@by_name
def test_a_function_is_as_differentiable_as_its_operator(operator):
    leaves = []
    results = outcome(operator, watched(operator, first_case(operator), leaves))
    expected = outcome(operator, first_case(operator))
    torch.testing.assert_close([r.detach() for r in results], expected, rtol=0, atol=0, equal_nan=True)
    loss = sum((result * (1 + k)).sum() for k, result in enumerate(results) if result.requires_grad)
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    assert any(gradient is not None and bool((gradient != 0).any()) for gradient in found)


@pytest.mark.parametrize("name", PURE)
def test_gradients_are_those_of_the_formula(name):
    """Of the first derivative and, where the gradient is the family's own, of the second."""
    operator = lookup(name)
    arguments = first_case(operator, torch.float64)
    tensors = [t for t in tensors_in(arguments) if t.is_floating_point()]
    backend = None if known(operator) else "reference"  # the textbook's gradient needs no kernel

    def call(*values):
        left = iter(values)
        fresh = [apply(lambda t: next(left) * 1 if t.is_floating_point() else t, value) for value in arguments]
        results = tensors_in([getattr(aclgrad, name, operator)(*fresh, backend=backend)])
        return tuple(result for result in results if result.requires_grad)

    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    torch.autograd.gradcheck(call, leaves, atol=1e-6, fast_mode=True)
    if known(operator):
        torch.autograd.gradgradcheck(call, leaves, atol=1e-6, fast_mode=True)


@by_name
def test_out_is_refused_where_a_gradient_is_wanted(operator):
    if not operator.spec.outs:
        pytest.skip("has no output")
    function, arguments = getattr(aclgrad, operator.spec.name, operator), first_case(operator)
    outs = operator.plan(arguments).allocate()
    out = outs[0] if len(outs) == 1 else outs
    leaves = []
    with pytest.raises(aclgrad.Unsupported, match="out is given where a gradient is wanted"):
        function(*watched(operator, arguments, leaves), out=out)
    with torch.no_grad():
        function(*watched(operator, arguments, leaves), out=out)
    floats = [t for t in tensors_in(outs) if t.is_floating_point()]
    floats[-1].requires_grad_()
    with pytest.raises(aclgrad.Unsupported, match="out is given where a gradient is wanted"):
        function(*arguments, out=out)
    with torch.no_grad():
        function(*arguments, out=out)


@by_name
def test_the_ops_too(operator):
    """An op that updates its arguments is a graph's node; torch would take it for nothing."""
    leaves = []
    arguments = watched(operator, first_case(operator), leaves)
    results = tensors_in([getattr(torch.ops.aclgrad, operator.spec.name)(*arguments)])
    updated = tensors_in([arguments[k] for k in operator.spec.updated])
    assert any(result.requires_grad for result in (*results, *updated))
    found = torch.autograd.grad(
        sum(r.sum() for r in (*results, *updated) if r.requires_grad), leaves, allow_unused=True
    )
    assert any(gradient is not None for gradient in found)


def test_running_statistics_are_followed_where_they_want_a_gradient():
    """Others are buffers, whose history would grow with every step."""
    parts, running = (torch.ones(1, 3, requires_grad=True), torch.ones(1, 3)), torch.zeros(3)
    gather = aclgrad.batch_norm_gather_stats_with_counts
    gather(torch.ones(2, 3), *parts, running, torch.ones(3), 0.1, 1e-5, torch.tensor([2.0]))
    assert not running.requires_grad and torch.equal(running, torch.full((3,), 0.1))
    watched = torch.zeros(3, requires_grad=True) * 1
    gather(torch.ones(2, 3), *parts, watched, torch.ones(3), 0.1, 1e-5, torch.tensor([2.0]))
    (of_mean,) = torch.autograd.grad(watched.sum(), parts[0])
    torch.testing.assert_close(of_mean, torch.full((1, 3), 0.1))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        gather(torch.ones(2, 3), *parts, torch.zeros(3, requires_grad=True), torch.ones(3), 0.1, 1e-5,
               torch.tensor([2.0]))  # fmt: skip


def test_a_leaf_is_not_written_over():
    for write in (aclgrad.hardsigmoid_, torch.ops.aclgrad.hardsigmoid_, aclgrad.nn.Hardsigmoid(inplace=True)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            write(torch.zeros(3, requires_grad=True))


def test_in_place_gradients_are_torchs():
    for write in (aclgrad.hardsigmoid_, torch.ops.aclgrad.hardsigmoid_, aclgrad.nn.Hardsigmoid(inplace=True)):
        x = torch.tensor([-4.0, -1.0, 2.0, 5.0], requires_grad=True)
        y = x * 1
        write(y)
        y.square().sum().backward()
        again = x.detach().clone().requires_grad_()
        torch.nn.functional.hardsigmoid(again).square().sum().backward()
        torch.testing.assert_close(x.grad, again.grad)


def test_the_aclnn_door_does_not_write_to_what_autograd_watches():
    x = torch.zeros(3)
    result = torch.zeros(3, requires_grad=True) * 1
    product = result * result
    run_hardsigmoid(x, result.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    *_, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, result)
    assert status == 161002
    with torch.no_grad():
        *_, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, result)
    assert status == 0


def run_hardsigmoid(x, result):
    size, executor, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, result)
    assert status == 0
    assert aclnn.aclnnHardsigmoid(None, size, executor, None) == 0
