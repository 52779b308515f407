"""The modules among torch's machinery: derivatives of derivatives, forward mode, tracing, tensors that are none."""

import copy

import pytest
import torch
from nn_helpers import assert_same_as_torch, twin
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import cross_entropy, linear

import aclgrad
import aclgrad.nn
from aclgrad.testing.cases import Data

TARGET = torch.tensor([0, 3, 1])


def head(x, reduction="mean"):
    weight = torch.eye(5, 4, dtype=x.dtype)
    return aclgrad.nn.linear_cross_entropy(x, weight, TARGET, reduction=reduction)


def values(*shape, dtype=torch.float32):
    return Data(dtype).normal(*shape)


MODULES = {
    "Hardsigmoid": (nn.Hardsigmoid, (3, 4)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 5), (3, 4)),
    "LSTM": (lambda: nn.LSTM(4, 5), (6, 3, 4)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4), (3, 4)),
}


@pytest.fixture(params=MODULES)
def module_and_input(request):
    make, shape = MODULES[request.param]
    return twin(make()), values(*shape)


def first(result):
    while isinstance(result, tuple):
        result = result[0]
    return result


@pytest.mark.parametrize("times", [3, 4])
def test_a_cell_can_be_differentiated_any_number_of_times(times):
    """No term is missing: in float64 a forgotten one would show in the first digits, rounding in the last."""
    torch.manual_seed(0)
    theirs = nn.LSTMCell(2, 2).double()
    results = []
    for module in (theirs, twin(theirs)):
        x, data = values(1, 2, dtype=torch.float64).requires_grad_(), Data(torch.float64, seed=5)
        y = (module(x)[0] * data.normal(1, 2)).sum()
        for _ in range(times - 1):
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            y = (slope * data.normal(1, 2)).sum()
        results.append(torch.autograd.grad(y, module.parameters()))
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-13)


def test_an_open_level_of_forward_mode_changes_nothing(module_and_input):
    """Nobody asked for a derivative."""
    module, x = module_and_input
    expected = first(module(x))
    with forward_ad.dual_level():
        torch.testing.assert_close(first(module(x)), expected)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_modules_can_be_traced(module_and_input):
    module, x = module_and_input
    module.eval()
    traced = torch.jit.trace(module, (x,), check_trace=False)
    torch.testing.assert_close(first(traced(x)), first(module(x)), rtol=0, atol=0)


def test_shapes_are_found_without_data(module_and_input):
    module, x = module_and_input
    expected = first(module(x))
    result = first(copy.deepcopy(module).to("meta")(x.to("meta")))
    assert result.is_meta and result.shape == expected.shape and result.dtype == expected.dtype


def test_tensors_that_have_no_memory_of_their_own(module_and_input):
    """A view that negates what it shows, and zeros that nobody wrote."""
    module, x = module_and_input
    module.eval()
    negated = torch.complex(x, -x).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(first(module(negated)), first(module(x)), rtol=0, atol=0)
    zeros = torch._efficientzerotensor(tuple(x.shape))
    torch.testing.assert_close(first(module(zeros)), first(module(torch.zeros_like(x))), rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_head_of_a_negated_view(reduction):
    x = values(3, 4)
    negated = torch.complex(x, -x).conj().imag.requires_grad_()
    torch.testing.assert_close(head(negated, reduction), head(x, reduction), rtol=0, atol=0)
    head(negated, reduction).sum().backward()


def test_gradients_that_arrive_negated():
    x = values(5, 3, 4).requires_grad_()

    def run(module, x):
        output, _ = module(x)
        z = torch.complex(torch.ones_like(output), output).conj()
        return torch.autograd.grad((z * z * (1 + 2j)).real.sum(), [x, *module.parameters()])

    torch.manual_seed(0)
    assert_same_as_torch(nn.LSTM(4, 5), x, run=run)


def test_writing_in_place_is_counted():
    """Autograd refuses a gradient whose operands were overwritten; so it does here."""
    for write in (twin(nn.Hardsigmoid(inplace=True)), aclgrad.hardsigmoid_, torch.ops.aclgrad.hardsigmoid_):
        a, w = values(3), torch.ones(3, requires_grad=True)
        product = a * w
        write(a)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
    a, w = values(3), torch.ones(3, requires_grad=True)
    product = a * w
    aclgrad.hardsigmoid(values(3), out=a)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_heads_at_the_border():
    no_features = aclgrad.nn.linear_cross_entropy(torch.ones(3, 0), torch.ones(5, 0), TARGET)
    torch.testing.assert_close(no_features, cross_entropy(torch.zeros(3, 5), TARGET))
    bytes_of = TARGET.to(torch.uint8)
    x, weight = values(3, 4), values(5, 4)
    torch.testing.assert_close(
        aclgrad.nn.linear_cross_entropy(x, weight, bytes_of), cross_entropy(linear(x, weight), bytes_of)
    )


def test_an_empty_batch_leaves_the_weights_alone():
    def run(module, x):
        module(x).sum().backward()
        return [p.grad for p in module.parameters()]

    for shape in ((0, 4), (0, 4, 3), (2, 4, 0)):
        x = torch.zeros(shape, requires_grad=True)
        assert all(bool((grad == 0).all()) for grad in run(twin(nn.SyncBatchNorm(4)), x))


def test_a_cumulative_average_is_planned_once():
    module = twin(nn.SyncBatchNorm(4, momentum=None))
    gather = next(
        operator
        for operator in aclgrad.core.registry.operators()
        if operator.spec.name == "batch_norm_gather_stats_with_counts"
    )
    module(values(8, 4))
    planned = len(gather._plans)
    for _ in range(3):
        module(values(8, 4))
    assert len(gather._plans) == planned


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyLoss"), reason="younger than this torch")
def test_the_head_shows_its_options_as_torchs_does():
    assert repr(aclgrad.nn.LinearCrossEntropyLoss(3, 4)) == repr(nn.LinearCrossEntropyLoss(3, 4))
    assert "options=None, softcap=2.0\n" in repr(aclgrad.nn.LinearCrossEntropyLoss(3, 4, softcap=2.0))


def test_both_biases_of_a_cell_get_a_gradient_of_their_own():
    module = twin(nn.LSTMCell(2, 3))
    first_bias, second_bias = torch.autograd.grad(module(torch.ones(4, 2))[0].sum(), [module.bias_ih, module.bias_hh])
    assert first_bias.data_ptr() != second_bias.data_ptr()
    assert torch.equal(first_bias, second_bias)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [2**32 + 3, -(2**63), 3])
def test_targets_are_not_ignored_for_their_last_bits(ignored, reduction):
    x, weight = values(3, 4), values(5, 4)
    short, long = (
        aclgrad.nn.linear_cross_entropy(x, weight, TARGET.to(dtype), ignore_index=ignored, reduction=reduction)
        for dtype in (torch.int32, torch.int64)
    )
    assert torch.equal(short, long)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("recorded", ["exported", "traced"])
def test_a_recorded_head_gives_gradients_that_its_example_did_not_want(recorded):
    module, x = aclgrad.nn.LinearCrossEntropyLoss(4, 5), values(3, 4)
    if recorded == "exported":
        again = torch.export.export(module, (x, TARGET)).module()
    else:
        again = torch.jit.trace(module, (x, TARGET), check_trace=False)
    leaf = x.clone().requires_grad_()
    again(leaf, TARGET).backward()
    expected = x.clone().requires_grad_()
    module.zero_grad()
    module(expected, TARGET).backward()
    torch.testing.assert_close(leaf.grad, expected.grad, rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_head_is_exported_for_any_number_of_tokens(reduction, training):
    module = aclgrad.nn.LinearCrossEntropyLoss(4, 5, reduction=reduction).train(training).requires_grad_(training)
    tokens = torch.export.Dim("tokens", min=2, max=64)
    program = torch.export.export(module, (values(3, 4), TARGET), dynamic_shapes=({0: tokens}, {0: tokens}))
    for size in (2, 7, 20, 64):
        x, target = values(size, 4), torch.arange(size) % 5
        torch.testing.assert_close(program.module()(x, target), module(x, target), rtol=0, atol=0)


def test_what_watches_the_dispatcher_sees_every_operator():
    module, x = twin(nn.LSTM(4, 5)), values(6, 3, 4)
    graph = make_fx(lambda x: module(x)[0])(x)
    torch.testing.assert_close(graph(2 * x), module(2 * x)[0], rtol=0, atol=0)

    def slope(x):
        return torch.autograd.grad(head(x.requires_grad_(), "none").sum(), x)[0]

    x = values(3, 4)
    torch.testing.assert_close(make_fx(slope)(x)(2 * x), slope(2 * x), rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_heads_of_tensors_without_data(reduction):
    with FakeTensorMode():
        x, weight = torch.empty(3, 4, requires_grad=True), torch.empty(5, 4)
        target = torch.zeros(3, dtype=torch.int64)
        aclgrad.nn.linear_cross_entropy(x, weight, target, reduction=reduction).sum().backward()
        assert x.grad.shape == (3, 4)
    x = torch.empty(3, 4, device="meta", requires_grad=True)
    aclgrad.nn.linear_cross_entropy(
        x, torch.empty(5, 4, device="meta"), TARGET.to("meta"), reduction=reduction
    ).sum().backward()
    assert x.grad.is_meta
    weight = values(5, 4).requires_grad_()
    zeros = torch._efficientzerotensor((3, 4))
    aclgrad.nn.linear_cross_entropy(zeros, weight, TARGET, reduction=reduction).sum().backward()
    assert bool((weight.grad == 0).all())
