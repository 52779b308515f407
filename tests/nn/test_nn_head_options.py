"""Every option of the head, alone and with others, against the formula written out in float64."""

import inspect
import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from head_problem import (
    LEVELS,
    ROWS,
    Problem,
    assert_right,
    formula,
    ours,
    pairwise,
    shown,
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import aclgrad.nn
from aclgrad.testing import judge
from aclgrad.testing.cases import Data
from aclgrad.testing.tolerance import naive_dtype

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
BACKENDS = ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow))
"""Of a compiler: the same graph without a C++ compiler, which takes its time."""

DEVICES = ("cpu", *([pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=shown)
def test_every_option_and_pair_of_options(row, dtype, device):
    if device == "cuda" and dtype == torch.float64:
        pytest.skip("the Triton kernels refuse float64")
    problem = Problem(row, dtype, device)
    assert_right(problem, problem.results(ours))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduction", LEVELS["reduction"])
def test_small_probabilities_of_own_targets(reduction, device):
    """Where an own target's loss counts nothing, its slope is as small as those of thousands of other classes."""
    plain = {name: levels[0] for name, levels in LEVELS.items()}
    for options in ({"label_smoothing": 1.0}, {"label_smoothing": 1.0, "classes": True, "z_loss": 1e-2}):
        problem = Problem({**plain, "reduction": reduction, **options}, torch.float32, device, sizes=(9, 5, 20011))
        assert_right(problem, problem.results(ours))


@pytest.mark.parametrize("row", pairwise(LEVELS, seed=1), ids=shown)
def test_gradients_are_checked_by_differences(row):
    problem = Problem(row, torch.float64, "cpu", seed=3)
    names = list(problem.leaves)

    def call(*values):
        return ours(problem, dict(zip(names, values, strict=True)))

    leaves = [leaf[:5] if name in ("x", "weights") else leaf for name, leaf in problem.leaves.items()]
    problem.target = problem.target[:5]
    assert torch.autograd.gradcheck(call, [leaf.clone().requires_grad_() for leaf in leaves], fast_mode=True)


EVERYTHING = {
    "bias": True, "classes": True, "reduction": "mean", "ignored": True, "label_smoothing": 0.1, "softcap": 5.0,
    "logit_scale": 0.8, "z_loss": 1e-3, "weighs": True, "normalizer": None, "return_stats": True,
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiled_whole(device, backend, reduction):
    """The bits of an eager call, in one graph."""
    problem = Problem({**EVERYTHING, "reduction": reduction}, torch.float32, device)
    compiled = torch.compile(aclgrad.nn.linear_cross_entropy, fullgraph=True, dynamic=False, backend=backend)
    eager = problem.results(ours)
    found = problem.results(lambda problem, leaves: ours(problem, leaves, compiled))
    for name, result in found.items():
        torch.testing.assert_close(result, eager[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lower", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast(device, lower):
    """The matrices are lowered; the loss, the bias and the gradients keep their dtype."""
    problem = Problem({**EVERYTHING, "return_stats": False}, torch.float32, device)

    def autocast(problem, leaves):
        with torch.autocast(device, lower):
            return ours(problem, leaves)

    results = problem.results(autocast)
    assert {result.dtype for result in results.values()} == {torch.float32}
    problem.leaves |= {name: problem.leaves[name].to(lower).float() for name in ("x", "w")}
    truth = problem.results(formula, torch.float64)
    for name, result in results.items():
        scale = truth[name].abs().max()
        assert (result.double() - truth[name]).abs().max() <= 4 * torch.finfo(lower).eps * scale, name


def test_an_own_logit_of_minus_infinity_has_no_part_in_the_entropy():
    x, w = Data().normal(3, 4), Data(seed=1).normal(6, 4)
    bias = torch.zeros(6)
    bias[2] = -torch.inf
    _, stats = aclgrad.nn.linear_cross_entropy(x, w, torch.tensor([2, 0, 2]), linear_bias=bias, return_stats=True)
    z = x @ w.t() + bias
    expected = torch.distributions.Categorical(logits=z[:, [0, 1, 3, 4, 5]]).entropy()
    torch.testing.assert_close(stats.entropy, expected)


def test_the_first_of_equal_classes_wins():
    """As argmax has it; ignored tokens win nothing, nor does NaN."""
    x, w = torch.ones(4, 2), torch.zeros(600, 2)
    x[3] = torch.nan
    target = torch.tensor([0, 599, -100, 0])
    _, stats = aclgrad.nn.linear_cross_entropy(x, w, target, return_stats=True)
    assert stats.correct.tolist() == [True, False, False, False] and stats.correct.dtype == torch.bool
    data = Data(seed=4)
    x, w = data.normal(200, 8), data.normal(1500, 8)
    target = (x @ w.t()).argmax(1)
    wrong = data.flags(200, share=0.5)
    target[wrong] = (target[wrong] + 1) % 1500
    _, stats = aclgrad.nn.linear_cross_entropy(x, w, target, return_stats=True)
    assert torch.equal(stats.correct, ~wrong)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_statistics_have_the_shape_of_the_targets(shape, reduction):
    x, w = Data().normal(*shape, 4).requires_grad_(), Data(seed=1).normal(9, 4)
    options = {"reduction": reduction, "softcap": 3.0, "token_weight": torch.ones(shape), "return_stats": True}
    loss, stats = aclgrad.nn.linear_cross_entropy(x, w, torch.zeros(shape, dtype=torch.int64), **options)
    assert {value.shape for value in stats} == {torch.Size(shape)}
    (gradient,) = torch.autograd.grad(loss.sum() + stats.entropy.sum(), x)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_statistics_alone_are_differentiated(dtype):
    """What reinforcement learning does: no loss, a policy gradient and an entropy bonus."""
    row = {**{name: values[0] for name, values in LEVELS.items()}, "return_stats": True, "ignored": True}
    problem = Problem(row, dtype, "cpu")

    def without_loss(compute):
        return lambda problem, leaves: (compute(problem, leaves)[0] * 0, *compute(problem, leaves)[1:])

    results = problem.results(lambda problem, leaves: (problem.upstream[0].new_zeros(()), *ours(problem, leaves)[1:]))
    truth = problem.results(without_loss(formula), torch.float64)
    naive = problem.results(without_loss(formula), naive_dtype(dtype))
    for name in ("logprob", "entropy", "lse", "x", "w"):
        verdict = judge(results[name], truth[name], naive[name], dtype)
        assert verdict.ok, f"{name}: {verdict}"


def test_micro_batches_with_a_normalizer_are_one_large_batch():
    data = Data(torch.float64, seed=2)
    x, w = data.normal(24, 6), data.normal(50, 6).requires_grad_()
    target = data.integers(0, 50, 24)
    target[[1, 2, 3, 17]] = -100
    whole = aclgrad.nn.linear_cross_entropy(x, w, target)
    (expected,) = torch.autograd.grad(whole, w)
    count = (target != -100).sum()
    total = 0
    for part in range(0, 24, 8):
        some = slice(part, part + 8)
        loss = aclgrad.nn.linear_cross_entropy(x[some], w, target[some], normalizer=count)
        loss.backward()
        total += loss.detach()
    torch.testing.assert_close(total, whole.detach())
    torch.testing.assert_close(w.grad, expected)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("trained", list(itertools.product((False, True), repeat=3)), ids=str)
def test_what_is_frozen_costs_no_product(trained, reduction):
    x, w, bias = (
        leaf.requires_grad_(on)
        for leaf, on in zip((torch.ones(8, 4), torch.ones(9, 4), torch.ones(9)), trained, strict=True)
    )
    with FlopCounterMode(display=False) as counter:
        loss = aclgrad.nn.linear_cross_entropy(x, w, torch.zeros(8).long(), linear_bias=bias, reduction=reduction)
        if any(trained):
            loss.sum().backward()
    once = 2 * 8 * 4 * 9
    products = 1 + sum(trained[:2]) + (reduction == "none" and any(trained))
    assert counter.get_total_flops() == products * once
    assert [leaf.grad is not None for leaf in (x, w, bias)] == list(trained)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_tokens_are_ignored_with_class_weights(reduction):
    """The mean of nothing is NaN, as it is in torch."""
    x, w, target = torch.ones(3, 4, requires_grad=True), torch.ones(5, 4), torch.full((3,), -100)
    options = {"weight": torch.ones(5), "label_smoothing": 0.1, "reduction": reduction}
    found = aclgrad.nn.linear_cross_entropy(x, w, target, **options)
    torch.testing.assert_close(found, F.cross_entropy(x @ w.t(), target, **options), equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_compiled_head_refuses_targets_out_of_range(backend):
    call = torch.compile(aclgrad.nn.linear_cross_entropy, fullgraph=True, backend=backend)
    with pytest.raises(aclgrad.InvalidArgument, match=r"target\[1\] is 9, expected 0 to 8"):
        call(torch.ones(2, 3), torch.ones(9, 3), torch.tensor([0, 9]), weight=torch.ones(9), softcap=3.0)


class TestAsTorchHasIt:
    """Behaviours that torch's own tests of linear_cross_entropy ask for."""

    theirs = staticmethod(getattr(F, "linear_cross_entropy", None))

    def data(self, *shape, classes=(7,), probable=False, dtype=torch.float64):
        data = Data(dtype)
        x, w = data.normal(*shape, 5), data.normal(*classes, 5)
        bias, weight = data.normal(*classes), data.uniform(0.1, 1.0, classes[0])
        if probable:
            target = data.normal(*shape, *classes).softmax(len(shape))
        else:
            target = data.integers(0, classes[0], *shape, *classes[1:])
        return x.requires_grad_(), w.requires_grad_(), target, bias.requires_grad_(), weight

    def written_out(self, x, w, target, bias, **options):
        """In any version of torch."""
        logits = F.linear(x, w.reshape(-1, 5), bias.reshape(-1)).reshape(*x.shape[:-1], *w.shape[:-1])
        return F.cross_entropy(logits, target, **options)

    @pytest.mark.skipif(not hasattr(F, "linear_cross_entropy"), reason="this torch has no linear_cross_entropy")
    def test_names_and_defaults(self):
        ours, theirs = (inspect.signature(f).parameters for f in (aclgrad.nn.linear_cross_entropy, self.theirs))
        for name, parameter in theirs.items():
            assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind)
        ours, theirs = (
            inspect.signature(c).parameters for c in (aclgrad.nn.LinearCrossEntropyLoss, nn.LinearCrossEntropyLoss)
        )
        for name, parameter in theirs.items():
            assert (ours[name].default, ours[name].kind) == (parameter.default, parameter.kind)

    @pytest.mark.parametrize("shape", [(), (6,)], ids=str)
    @pytest.mark.parametrize("classes", [(7,), (7, 2), (7, 2, 3)], ids=str)
    @pytest.mark.parametrize("probable", [False, True], ids=["indices", "probabilities"])
    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
    def test_the_reference(self, shape, classes, probable, reduction, label_smoothing):
        if shape == () and len(classes) > 1:
            pytest.skip("several dimensions want a batch")
        x, w, target, bias, weight = self.data(*shape, classes=classes, probable=probable)
        options = {"weight": weight, "reduction": reduction, "label_smoothing": label_smoothing}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss = aclgrad.nn.linear_cross_entropy(x, w, target, linear_bias=bias, **options)
        assert bool(caught) == (probable or len(classes) > 1)
        expected = self.written_out(x, w, target, bias, **options)
        leaves = (x, w, bias)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(
            torch.autograd.grad(loss.sum(), leaves), torch.autograd.grad(expected.sum(), leaves)
        )  # fmt: skip

    @pytest.mark.parametrize("classes", [(7,), (7, 2)], ids=str)
    @pytest.mark.filterwarnings("ignore:linear_cross_entropy")
    def test_without_features(self, classes):
        x, w, target, bias, _ = self.data(6, classes=classes, probable=True)
        none = slice(0)
        loss = aclgrad.nn.linear_cross_entropy(x[:, none], w[..., none], target, linear_bias=bias)
        torch.testing.assert_close(loss, F.cross_entropy(bias.expand(6, *classes), target))
        assert torch.autograd.grad(loss, w)[0].eq(0).all()

    @pytest.mark.parametrize("out_features", [(), (2,), (2, 3)], ids=str)
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.filterwarnings("ignore:linear_cross_entropy")
    def test_modules(self, out_features, bias):
        module = aclgrad.nn.LinearCrossEntropyLoss(
            5, 7, out_features=out_features, bias=bias, weight=torch.rand(7), label_smoothing=0.2, dtype=torch.float64
        )
        x, _, target, *_ = self.data(6, classes=(7, *out_features))
        zeros = torch.zeros(module.linear.weight.shape[0], dtype=torch.float64)
        shape = (7, *out_features, 5)
        expected = self.written_out(
            x, module.linear.weight.view(shape), target, module.linear.bias if bias else zeros,
            weight=module.weight.double(), label_smoothing=0.2,
        )  # fmt: skip
        torch.testing.assert_close(module(x, target), expected)
        assert set(module.state_dict()) == {"weight", "linear.weight", *(["linear.bias"] if bias else [])}

    def test_ignored_classes_with_weights(self):
        x, w, target, bias, weight = self.data(6)
        for index in (-100, 3, int(target[0])):
            options = {"weight": weight, "label_smoothing": 0.1, "ignore_index": index}
            loss = aclgrad.nn.linear_cross_entropy(x, w, target, linear_bias=bias, **options)
            torch.testing.assert_close(loss, self.written_out(x, w, target, bias, **options))
