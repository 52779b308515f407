"""What torch's documentation promises of nn.LinearCrossEntropyLoss, kept by its twin, and what it gives beyond."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, peak_memory
from torch import nn

import aclgrad.nn
from aclgrad.testing.cases import Data

TOKENS, FEATURES, CLASSES = 11, 6, 37
REDUCTIONS = ["mean", "sum", "none"]
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


class TorchHead(nn.Module):
    """torch's modules for the same job, in any version, with the parameters of LinearCrossEntropyLoss."""

    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.linear = nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, input, target):
        logits = self.linear(input).reshape(-1, CLASSES)
        loss = nn.functional.cross_entropy(logits, target.reshape(-1).long(), **self.options)
        return loss.view(target.shape) if self.options.get("reduction") == "none" else loss


def head(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return TorchHead(**options).to(dtype)


def twin(theirs):
    """Ours, of the same weight."""
    weight = theirs.linear.weight
    ours = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, dtype=weight.dtype, **theirs.options)
    ours.load_state_dict(theirs.state_dict())
    ours.linear.weight.requires_grad_(weight.requires_grad)
    return ours


def tokens(dtype=torch.float32, *shape):
    return Data(dtype).normal(*(shape or (TOKENS,)), FEATURES).requires_grad_()


def targets(*shape, ignored=(), ignore_index=-100):
    chosen = Data(seed=1).integers(0, CLASSES, *(shape or (TOKENS,)))
    chosen.view(-1)[list(ignored)] = ignore_index
    return chosen


def assert_agree(theirs, *arguments, **options):
    """The loss is wide where torch's is not."""
    loss, *gradients = assert_same_as_torch(theirs, *arguments, twin=twin, same_dtypes=False, **options)
    dtype = theirs.linear.weight.dtype
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert {gradient.dtype for gradient in gradients} <= {dtype}
    return loss, *gradients


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_loss_and_gradients(dtype, reduction):
    assert_agree(head(dtype, reduction=reduction), tokens(dtype), targets())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("index", [-100, -1, 5])
def test_ignored_tokens_count_for_nothing(reduction, index):
    theirs = head(reduction=reduction, ignore_index=index)
    loss, gradient, _ = assert_agree(theirs, tokens(), targets(ignored=(0, 4, 10), ignore_index=index))
    assert not gradient[[0, 4, 10]].any()
    if reduction == "none":
        assert not loss[[0, 4, 10]].any()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_tokens_are_ignored(reduction):
    """The mean of nothing is NaN, as it is in torch."""
    x, target = tokens(), targets(ignored=range(TOKENS))
    ours, theirs = (
        outputs_and_gradients(m, x, target) for m in (twin(head(reduction=reduction)), head(reduction=reduction))
    )
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=0, equal_nan=True)
    assert ours[0].isnan().all() == (reduction == "mean")


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_targets_have_the_shape_of_the_tokens(shape, reduction):
    x = Data().normal(*shape, FEATURES).requires_grad_()
    target = Data(seed=1).integers(0, CLASSES, *shape)
    loss, gradient, _ = assert_agree(head(reduction=reduction), x, target)
    assert loss.shape == (shape if reduction == "none" else ()) and gradient.shape == x.shape


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_int32_targets(reduction):
    ours = twin(head(reduction=reduction))
    torch.testing.assert_close(ours(tokens(), targets().int()), ours(tokens(), targets()), rtol=0, atol=0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("frozen", ["weight", "input"])
def test_a_frozen_side_has_no_gradient_and_the_other_the_same(reduction, frozen):
    theirs, x = head(reduction=reduction), tokens()
    (theirs.linear.weight if frozen == "weight" else x).requires_grad_(False)
    assert len(assert_agree(theirs, x, targets())) == 2


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_is_trained(reduction):
    theirs = head(reduction=reduction)
    with torch.no_grad():
        expected, loss = theirs(tokens(), targets()), twin(theirs)(tokens(), targets())
    assert loss.grad_fn is None
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("scale", [3.0, 1e-3, -2.0, 0.0])
def test_the_gradient_from_above_scales(reduction, scale):
    """As loss scaling and gradient accumulation do."""

    def run(module, x, target):
        return torch.autograd.grad((module(x, target) * scale).sum(), [x, *module.parameters()])

    assert_same_as_torch(head(reduction=reduction), tokens(), targets(), run=run, twin=twin)


def test_float16_gradients_under_a_loss_scale():
    """Gradients that only the scale lifts above float16's smallest number."""

    def run(module, x, target):
        return torch.autograd.grad(module(x, target) * 2.0**14, [x, *module.parameters()])

    theirs = head(torch.float16)
    theirs.linear.weight.data *= 2.0**-10
    assert_same_as_torch(
        theirs, (tokens(torch.float16) * 2.0**-6).detach().requires_grad_(), targets(), run=run, twin=twin
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_each_token_has_a_gradient_of_its_own(reduction):
    weights = Data(seed=2).normal(TOKENS)

    def run(module, x, target):
        loss = module(x, target)
        loss = loss @ weights.to(loss.dtype) if reduction == "none" else loss * 0.3
        return torch.autograd.grad(loss, [x, *module.parameters()])

    assert_same_as_torch(head(reduction=reduction), tokens(), targets(), run=run, twin=twin)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_second_backward_pass_over_a_kept_graph(reduction):
    ours, x = twin(head(reduction=reduction)), tokens()
    loss = ours(x, targets()).sum()
    wanted = [x, ours.linear.weight]
    first = [g.clone() for g in torch.autograd.grad(loss, wanted, retain_graph=True)]
    torch.testing.assert_close(torch.autograd.grad(2 * loss, wanted, retain_graph=True), [2 * g for g in first])
    torch.testing.assert_close(torch.autograd.grad(loss, wanted), tuple(first))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, wanted)


def test_gradients_accumulate():
    ours, x = twin(head()), tokens()
    for _ in range(2):
        ours(x, targets()).backward()
    (once,) = torch.autograd.grad(ours(x, targets()), x)
    torch.testing.assert_close(x.grad, 2 * once)


def test_gradients_are_checked_by_differences():
    weight = twin(head(torch.float64)).linear.weight
    for reduction in REDUCTIONS:

        def call(x, weight, reduction=reduction):
            return aclgrad.nn.linear_cross_entropy(x, weight, targets(ignored=(2,)), reduction=reduction)

        assert torch.autograd.gradcheck(call, (tokens(torch.float64), weight), fast_mode=True)


def test_a_confident_prediction():
    """p − 1 at the target is not lost to rounding where p is almost 1."""
    theirs = head()
    theirs.linear.weight.data *= 8
    x = theirs.linear.weight.data[targets()].clone().requires_grad_()
    assert_agree(theirs, x, targets())


def test_tied_with_an_embedding():
    """One tensor, two uses, one gradient."""

    def run(module, target):
        x = nn.functional.embedding(target, module.linear.weight)
        return torch.autograd.grad(module(x, target.roll(1)), module.parameters())

    assert_same_as_torch(head(), targets(), run=run, twin=twin)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_compute_the_same(copied):
    module = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, reduction="sum", ignore_index=3)
    again = copied(module)
    assert type(again) is aclgrad.nn.LinearCrossEntropyLoss and again.linear.weight is not module.linear.weight
    torch.testing.assert_close(again(tokens(), targets()), module(tokens(), targets()), rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyLoss"), reason="this torch has no LinearCrossEntropyLoss")
class TestTorchsOwn:
    def test_constructor_parameters_and_state_dict(self):
        options = {"reduction": "sum", "ignore_index": 3}
        torch.manual_seed(0)
        theirs = nn.LinearCrossEntropyLoss(FEATURES, CLASSES, **options)
        torch.manual_seed(0)
        ours = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, **options)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())
        torch.testing.assert_close(ours(tokens(), targets()), theirs(tokens(), targets()))

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_converted(self, reduction):
        theirs = nn.LinearCrossEntropyLoss(FEATURES, CLASSES, reduction=reduction)
        ours = aclgrad.nn.convert(copy.deepcopy(theirs))
        assert type(ours) is aclgrad.nn.LinearCrossEntropyLoss
        torch.testing.assert_close(
            outputs_and_gradients(ours, tokens(), targets()), outputs_and_gradients(theirs, tokens(), targets())
        )

    @pytest.mark.parametrize("option", ["softcap", "logit_scale", "z_loss", "return_stats"])
    def test_what_torch_lacks_stays_ours(self, option):
        ours = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, **{option: option == "return_stats" or 2.0})
        assert type(aclgrad.nn.revert(ours)) is aclgrad.nn.LinearCrossEntropyLoss


def test_the_head_takes_an_eighth_of_torchs_memory():
    rows, features, classes = 1024, 16, 16384
    x, weight = Data().normal(rows, features).requires_grad_(), Data(seed=1).normal(classes, features).requires_grad_()
    target = Data(seed=2).integers(0, classes, rows)

    def step(loss):
        return lambda: torch.autograd.grad(loss(), [x, weight])

    ours = peak_memory(step(lambda: aclgrad.nn.linear_cross_entropy(x, weight, target)))
    theirs = peak_memory(step(lambda: nn.functional.cross_entropy(x @ weight.t(), target)))
    assert theirs > rows * classes * x.element_size()
    returned = (x.numel() + weight.numel()) * x.element_size()
    assert ours - returned <= (theirs - returned) / 8
