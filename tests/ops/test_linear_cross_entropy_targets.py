"""Targets that are no rows of the weight: refused where somebody looks, and never unnoticed where nobody does."""

import pytest
import torch

from aclgrad.core.errors import InvalidArgument
from aclgrad.ops.linear_cross_entropy import training

GPU = torch.cuda.is_available()
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
OPERATOR = training.together


def head(dtype=torch.float32):
    """(input, weight, target) of five tokens, eight features and thirty classes."""
    generator = torch.Generator("cpu").manual_seed(0)
    x, w = (torch.randn(n, 8, generator=generator, device="cpu").to(dtype) for n in (5, 30))
    target = torch.randint(0, 30, (5,), generator=generator, device="cpu")
    target[1] = -100
    return tuple(t.to(torch.get_default_device()) for t in (x, w, target))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_target_that_does_not_exist_is_named(backend):
    x, w, target = head()
    target[2], target[3] = 30, -1
    for function in (training.loss_and_gradients, training.token_losses):
        with pytest.raises(InvalidArgument, match=r"target\[2\] is 30, expected 0 to 29 or ignore_index = -100"):
            function(x, w, target, backend=backend)


@pytest.mark.parametrize("given", [False, True], ids=["all are ours", "some are given"])
def test_outputs_are_written_before_the_targets_are_looked_at_only_where_nobody_has_them(given):
    x, w, target = head()
    arguments = (x, w, target, -100, True, True, True)
    outs = list(OPERATOR.plan(arguments).allocate())
    right = OPERATOR(*arguments, out=outs if given else None)
    before = [None if out is None else out.clone() for out in right]
    target[2] = 30
    with pytest.raises(InvalidArgument, match=r"target\[2\] is 30"):
        OPERATOR(*arguments, out=outs if given else None)
    for out, kept in zip(right, before, strict=True):
        assert out is kept is None or torch.equal(out, kept)


def test_a_loss_that_is_no_number_is_no_fault_of_the_targets():
    x, w, target = head()
    x[0] = torch.nan
    assert bool(training.loss_and_gradients(x, w, target, backend="cpu")[0].isnan())


@pytest.mark.gpu
@pytest.mark.interpreted(dtype=DTYPES[:1])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_a_target_that_does_not_exist_makes_everything_undefined(dtype):
    """On a device nobody waits to look at the targets first, and a step with such gradients must not go unnoticed."""
    with torch.device("cuda" if GPU else "cpu"):
        assert_undefined(dtype, "triton", 30)


@pytest.mark.parametrize("target", [30, -1, 2**40, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_on_a_cpu_too_where_that_tells_of_it(dtype, target):
    assert_undefined(dtype, "cpu", target)


def assert_undefined(dtype, backend, wrong):
    x, w, target = head(dtype)
    target[2] = wrong
    arguments = (x, w, target, -100, True, True, True)
    loss, dx, dw, *_ = launched(OPERATOR, arguments, backend)
    assert bool(loss.isnan()) and bool(dx[2].isnan().all()) and bool(dw.isnan().all())
    assert not bool(dx[0].isnan().any())
    losses, *statistics = launched(training.losses, (x, w, target, -100), backend)[:4]
    assert losses.isnan().tolist() == [False, False, True, False, False]
    wide = losses.dtype
    dx, dw, _ = launched(
        training.gradients, (torch.ones(5, dtype=wide), x, w, target, -100, *statistics, True, True), backend
    )  # fmt: skip
    assert bool(dx[2].isnan().all()) and bool(dw.isnan().all()) and not bool(dx[0].isnan().any())


OPTIONS = {
    "bias": torch.randn(30), "class_weight": torch.zeros(30), "label_smoothing": 0.5, "softcap": 3.0,
    "logit_scale": 0.0, "z_loss": 0.25, "token_weight": torch.zeros(5), "normalizer": torch.tensor(torch.inf),
}  # fmt: skip


@pytest.mark.parametrize("mean", [True, False], ids=["mean", "sum"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_loss_tells_of_wrong_targets_whatever_the_options(name, mean):
    x, w, target = head()
    named = {"input": x, "weight": w, "target": target, "ignore_index": -100, "mean": mean, name: OPTIONS[name]}
    named |= {"wants_input_grad": True, "wants_weight_grad": False}
    arguments = [named.get(arg.name, arg.default) for arg in OPERATOR.spec.args]
    assert not bool(launched(OPERATOR, arguments, "cpu")[0].isnan())
    target[2] = 30
    assert bool(launched(OPERATOR, arguments, "cpu")[0].isnan())


def launched(operator, arguments, backend):
    """Results of a plan, past the look at values that only a CPU's tensors get."""
    plan = operator.plan(arguments, backend=backend)
    outs = plan.allocate()
    plan.launch(operator.spec.completed(arguments), outs, plan.workspace())
    return outs
