"""The modules under the transforms of torch.func, and under batched gradients: what the textbook gives there."""

import copy

import pytest
import torch
from nn_helpers import twin
from torch import func, nn

import aclgrad
import aclgrad.nn
from aclgrad.testing.cases import Data

SAMPLES = 3


def first(result):
    return first(result[0]) if isinstance(result, tuple) else result


def first_of(module):
    """A module as a function of parameters and input."""
    return lambda parameters, x: first(func.functional_call(module, parameters, (x,)))


def cell_by_the_book(parameters, x, end="", states=None):
    """torch's own cell and LSTM cannot be mapped."""
    hidden = parameters[f"weight_hh{end}"].shape[1]
    h, c = states or [torch.zeros(*x.shape[:-1], hidden, dtype=x.dtype)] * 2
    w_ih, w_hh, b_ih, b_hh = (parameters[f"{name}{end}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    i, f, g, o = (x @ w_ih.t() + b_ih + h @ w_hh.t() + b_hh).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm_by_the_book(parameters, x):
    for layer in range(2):
        ways = []
        for end, order in ((f"_l{layer}", 1), (f"_l{layer}_reverse", -1)):
            outputs, states = [], None
            for step in list(x)[::order]:
                states = cell_by_the_book(parameters, step, end, states)
                outputs.append(states[0])
            ways.append(torch.stack(outputs[::order]))
        x = torch.cat(ways, -1)
    return x


TARGET = torch.tensor([0, 5, -100, 2])


class Head(nn.Module):
    """A head with its targets, for transforms that know of no targets."""

    def __init__(self, reduction):
        super().__init__()
        self.head = aclgrad.nn.LinearCrossEntropyLoss(3, 6, reduction=reduction)

    def forward(self, x):
        return self.head(x, TARGET)


def heads(reduction):
    def by_the_book(parameters, x):
        return nn.functional.cross_entropy(x @ parameters["head.linear.weight"].t(), TARGET, reduction=reduction)

    return lambda: Head(reduction), (4, 3), by_the_book


MODULES = {
    "Hardsigmoid": (nn.Hardsigmoid, (2, 4), lambda p, x: (x / 6 + 0.5).clamp(0, 1)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), (2, 4), lambda p, x: cell_by_the_book(p, x)[0]),
    "LSTM": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), (2, 2, 4), lstm_by_the_book),
    "SyncBatchNorm": (
        lambda: nn.SyncBatchNorm(4, track_running_stats=False),
        (5, 4),
        lambda p, x: nn.functional.batch_norm(x, None, None, p["weight"], p["bias"], training=True),
    ),
    **{f"head, {reduction}": heads(reduction) for reduction in ("mean", "sum", "none")},
}


def weighted(y):
    """A scalar that depends on every element differently."""
    return (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)).sum()


def loss(f):
    return lambda parameters, x: weighted(f(parameters, x))


def stacked(parameters):
    return {name: torch.stack([value * k for k in (1.0, 0.5, 2.0)]) for name, value in parameters.items()}


TRANSFORMS = {
    "functional_call": lambda f, p, x, xs: f(p, x),
    "vmap": lambda f, p, x, xs: func.vmap(f, (None, 0))(p, xs),
    "vmap without gradients": lambda f, p, x, xs: torch.no_grad()(func.vmap(f, (None, 0)))(p, xs),
    "vmap along the last": lambda f, p, x, xs: func.vmap(f, (None, -1), -1)(p, xs.movedim(0, -1)),
    "an ensemble": lambda f, p, x, xs: func.vmap(f, (0, None))(stacked(p), x) if p else f(p, x),
    "an ensemble, each with its own": lambda f, p, x, xs: func.vmap(f)(stacked(p), xs) if p else f(p, x),
    "vmap of vmap": lambda f, p, x, xs: func.vmap(func.vmap(f, (None, 0)), (None, 0))(p, torch.stack([xs, 2 * xs])),
    "grad": lambda f, p, x, xs: func.grad(loss(f), (0, 1))(p, x),
    "grad_and_value": lambda f, p, x, xs: func.grad_and_value(loss(f))(p, x),
    "vjp": lambda f, p, x, xs: (lambda y, pull: pull(torch.ones_like(y)))(*func.vjp(f, p, x)),
    "gradients of every sample": lambda f, p, x, xs: func.vmap(func.grad(loss(f), (0, 1)), (None, 0))(p, xs),
    "grad of vmap": lambda f, p, x, xs: func.grad(lambda p, xs: weighted(func.vmap(f, (None, 0))(p, xs)), (0, 1))(
        p, xs
    ),
    "grad of vmap, of the input alone": lambda f, p, x, xs: func.grad(
        lambda xs: weighted(func.vmap(f, (None, 0))(p, xs))
    )(xs),
    "jacrev": lambda f, p, x, xs: func.jacrev(f, (0, 1))(p, x),
    "jacrev in chunks": lambda f, p, x, xs: func.jacrev(f, 1, chunk_size=2)(p, x),
    "vmap of jacrev": lambda f, p, x, xs: func.vmap(func.jacrev(f, 1), (None, 0))(p, xs),
    "backward of vmap": lambda f, p, x, xs: backward_of_vmap(f, p, xs),
    "batched gradients": lambda f, p, x, xs: batched_gradients(f, p, x),
    "jacobian, vectorised": lambda f, p, x, xs: torch.autograd.functional.jacobian(
        lambda x: f(p, x), x, vectorize=True
    ),
}
TWICE = {
    "grad of grad": lambda f, p, x, xs: func.grad(lambda x: weighted(func.grad(loss(f), 1)(p, x)))(x),
    "jacrev of grad": lambda f, p, x, xs: func.jacrev(func.grad(loss(f), 1), 1)(p, x),
    "hessian by rows": lambda f, p, x, xs: torch.autograd.functional.hessian(
        lambda x: loss(f)(p, x), x, vectorize=True
    ),
}
FORWARD = {
    "jvp": lambda f, p, x, xs: func.jvp(lambda x: f(p, x), (x,), (xs[0],)),
    "jacfwd": lambda f, p, x, xs: func.jacfwd(f, 1)(p, x),
    "hessian": lambda f, p, x, xs: func.hessian(loss(f), 1)(p, x),
    "vmap of jvp": lambda f, p, x, xs: func.vmap(lambda x: func.jvp(lambda x: f(p, x), (x,), (x,)))(xs),
    "linearize": lambda f, p, x, xs: func.linearize(lambda x: f(p, x), x)[0],
}


def backward_of_vmap(f, parameters, xs):
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    xs = xs.clone().requires_grad_()
    y = weighted(func.vmap(f, (None, 0))(leaves, xs))
    return torch.autograd.grad(y, [xs, *leaves.values()])


def batched_gradients(f, parameters, x):
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    x = x.clone().requires_grad_()
    y = f(leaves, x)
    directions = Data(torch.float64, seed=4).normal(SAMPLES, *y.shape)
    return torch.autograd.grad(y, [x, *leaves.values()], directions, is_grads_batched=True)


@pytest.fixture(params=MODULES)
def case(request):
    """A name, the module and the textbook as functions, and their arguments: parameters, one input, several of them."""
    make, shape, book = MODULES[request.param]
    torch.manual_seed(0)
    module = twin(make().double())
    parameters = {name: value.detach().clone() for name, value in module.named_parameters()}
    data = Data(torch.float64)
    return request.param, first_of(module), book, (parameters, data.normal(*shape), data.normal(SAMPLES, *shape))


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_gives_what_it_gives_of_the_textbook(case, transform):
    _, module, book, arguments = case
    torch.testing.assert_close(transform(module, *arguments), transform(book, *arguments))


@pytest.mark.parametrize("transform", TWICE.values(), ids=TWICE)
def test_a_second_derivative(case, transform):
    _, module, book, arguments = case
    torch.testing.assert_close(transform(module, *arguments), transform(book, *arguments))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch's linearize to itself
@pytest.mark.parametrize("transform", FORWARD.values(), ids=FORWARD)
def test_forward_mode_at_every_level(case, transform):
    _, module, book, arguments = case
    torch.testing.assert_close(transform(module, *arguments), transform(book, *arguments))


def test_running_statistics_are_mapped_or_switched_off():
    module, xs = aclgrad.nn.SyncBatchNorm(4), Data().normal(SAMPLES, 5, 4)
    with pytest.raises(aclgrad.Unsupported, match="running_mean is one tensor for all samples"):
        func.vmap(module)(xs)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    copies = {name: torch.stack([value] * SAMPLES).detach() for name, value in state.items()}
    func.vmap(lambda state, x: func.functional_call(module, state, (x,)))(copies, xs)
    for k, x in enumerate(xs):
        alone = copy.deepcopy(module)
        alone.reset_running_stats()
        alone(x)
        torch.testing.assert_close(copies["running_mean"][k], alone.running_mean, rtol=0, atol=0)
    func.replace_all_batch_norm_modules_(module)
    torch.testing.assert_close(func.vmap(module)(xs), torch.stack([module(x) for x in xs]), rtol=0, atol=0)


def test_ops_are_differentiated():
    x = Data(torch.float64).normal(5)
    hardsigmoid = torch.ops.aclgrad.hardsigmoid
    expected = func.grad(lambda x: nn.functional.hardsigmoid(x).square().sum())(x)
    torch.testing.assert_close(func.grad(lambda x: hardsigmoid(x).square().sum())(x), expected)
    tangent = func.jvp(hardsigmoid, (x,), (x,))[1]
    torch.testing.assert_close(tangent, func.jvp(nn.functional.hardsigmoid, (x,), (x,))[1])
    of_a_mean = func.grad(lambda x: torch.ops.aclgrad.batch_norm_stats(x, 0.1)[0].sum())(x[:, None])
    torch.testing.assert_close(of_a_mean, torch.full((5, 1), 0.2, dtype=torch.float64))


def test_a_node_has_the_name_of_its_op():
    assert torch.ops.aclgrad.hardsigmoid(torch.ones(2, requires_grad=True)).grad_fn.name() == "hardsigmoidBackward"
