"""A compiled call gives the bits of an eager one: its kernels are the same, and so is all arithmetic around them."""

import pytest
import torch

import aclgrad
import aclgrad.nn
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import lookup, operators
from aclgrad.testing.cases import Data, suite
from aclgrad.testing.layouts import apply

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DIFFERENTIABLE = ("hardsigmoid", "hardsigmoid_backward", "lstm", "lstm_cell", "lstm_cell_backward")
QUICK = FLOATS[:2]
"""One dtype that is computed in as it is, and one that is not; the others are slow."""

by_dtype = pytest.mark.parametrize(
    "dtype", [pytest.param(dtype, id=str(dtype), marks=() if dtype in QUICK else pytest.mark.slow) for dtype in FLOATS]
)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="aot_eager", fullgraph=True)


def gradients(function, tensors):
    """What a function returns, and the gradients for factors that no half type has."""
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    results = [result for result in tensors_in([function(*leaves)]) if result.requires_grad]
    loss = sum((result.float() * (1 / 3 + k) * torch.linspace(0.7, 1.9, result.numel()).reshape(result.shape)).sum()
               for k, result in enumerate(results))  # fmt: skip
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [*(result.detach() for result in results), *(g for g in found if g is not None)]


def assert_same_bits(function, tensors):
    expected, found = gradients(function, tensors), gradients(compiled(function), tensors)
    assert len(expected) == len(found) > 1
    for result, want in zip(found, expected, strict=True):
        assert result.dtype == want.dtype
        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


@by_dtype
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_differentiable_functions(name, dtype):
    operator = lookup(name)
    case = suite(operator.spec).cases[0]
    if dtype not in case.dtypes:
        pytest.skip("the case has no such dtype")
    arguments = case.build(dtype)

    def call(*tensors):
        left = iter(tensors)
        return getattr(aclgrad, name)(*[apply(lambda _: next(left), value) for value in arguments])

    assert_same_bits(call, tensors_in(arguments))


@pytest.mark.parametrize(
    "dtypes", [FLOATS[:1], pytest.param(FLOATS[1:], marks=pytest.mark.slow)], ids=["quick", "others"]
)
@pytest.mark.parametrize("operator", list(operators()), ids=lambda operator: operator.spec.name)
def test_functions_without_a_gradient(operator, dtypes):
    """In a dtype that the first case has: what is compiled is one op."""
    case = suite(operator.spec).cases[0]
    for dtype in [dtype for dtype in dtypes if dtype in case.dtypes]:
        arguments, again = case.build(dtype), case.build(dtype)
        function = getattr(aclgrad, operator.spec.name, operator)
        expected, found = function(*arguments), compiled(lambda *args, f=function: f(*args))(*again)
        torch.testing.assert_close(tensors_in([found]), tensors_in([expected]), rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(tensors_in(again), tensors_in(arguments), rtol=0, atol=0, equal_nan=True)


TARGET = torch.tensor([1, 0, 6, -100, 3])


@by_dtype
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_head(reduction, dtype):
    data = Data(dtype)
    assert_same_bits(
        lambda x, w: aclgrad.nn.linear_cross_entropy(x, w, TARGET, reduction=reduction),
        (data.normal(5, 8), data.normal(7, 8)),
    )


MODULES = {
    "LSTM": (lambda: aclgrad.nn.LSTM(4, 5, 2, bidirectional=True), (6, 3, 4)),
    "LSTMCell": (lambda: aclgrad.nn.LSTMCell(4, 5), (3, 4)),
    "Hardsigmoid": (aclgrad.nn.Hardsigmoid, (3, 4)),
    "SyncBatchNorm": (lambda: aclgrad.nn.SyncBatchNorm(4), (3, 4, 7)),
}


@by_dtype
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, dtype):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make().to(dtype if name != "SyncBatchNorm" else torch.float64 if dtype == torch.float64 else torch.float32)
    names, parameters = zip(*module.named_parameters(), strict=True) if list(module.parameters()) else ((), ())
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}

    def call(x, *values):
        state = {**dict(zip(names, values, strict=True)), **{name: buffer.clone() for name, buffer in buffers.items()}}
        return torch.func.functional_call(module, state, (x,))

    assert_same_bits(call, (Data(dtype).normal(*shape), *parameters))


@by_dtype
def test_in_place(dtype):
    def call(x):
        y = x * 1
        aclgrad.hardsigmoid_(y)
        return y

    assert_same_bits(call, (Data(dtype).normal(5),))


@pytest.mark.parametrize("wants", [True, False])
def test_hardsigmoid_over_its_input(wants):
    module, x = aclgrad.nn.Hardsigmoid(inplace=True), torch.linspace(-4, 4, 9)
    with torch.set_grad_enabled(wants):
        y = x.clone()
        assert compiled(module)(y) is y
    torch.testing.assert_close(y, torch.nn.functional.hardsigmoid(x))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_target_that_does_not_exist_is_named(dtype, reduction):
    module = aclgrad.nn.LinearCrossEntropyLoss(4, 9, dtype=dtype, reduction=reduction)
    x = torch.randn(3, 4).to(dtype)
    with pytest.raises(aclgrad.InvalidArgument, match=r"target\[1\] is 9, expected 0 to 8"):
        compiled(module)(x, torch.tensor([0, 9, 1]))
