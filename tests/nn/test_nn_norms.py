"""What torch's documentation promises of nn.BatchNorm1d, 2d and 3d, kept by their twins: by kernels and in small."""

import copy
import pickle

import pytest
import torch
from nn_helpers import assert_same_as_torch, outputs_and_gradients, several_steps, twin
from torch import func, nn

import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Data

C = 3
KINDS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


@pytest.fixture(params=[False, True], ids=["kernels", "small"])
def served(request, monkeypatch):
    """Whether torch's operations serve small calls."""
    monkeypatch.setattr(small, "enabled", request.param)


def norm(planes=2, **options):
    """With parameters and statistics that are not those of the start."""
    module = KINDS[planes](C, **options)
    data = Data(seed=1)
    for parameter in module.parameters():
        parameter.data = data.normal(C)
    if module.track_running_stats:
        module.running_mean.copy_(data.normal(C))
        module.running_var.copy_(data.uniform(0.5, 2.0, C))
    return module


def batch(*rest, dtype=torch.float32, seed=0, shift=1.0):
    return (Data(dtype, seed).normal(6, C, *rest) * 2 + shift).detach().requires_grad_()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 0.7, "eps": 0.1}],
    ids=["plain", "not affine", "no running statistics", "cumulative", "momentum and eps"],
)
def test_outputs_gradients_and_running_statistics(options, training):
    module = norm(**options).train(training)
    assert_same_as_torch(module, *(batch(5, 2, seed=seed) for seed in range(3)), run=several_steps)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 2)], ids=len)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_every_rank(shape, training):
    assert_same_as_torch(norm(max(1, len(shape))).train(training), batch(*shape), run=several_steps)


def by_the_book(module, x):
    """Output and gradient, in the dtype of x."""
    view = (1, C, 1, 1)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    if not module.training:
        mean, var = module.running_mean.to(x.dtype), module.running_var.to(x.dtype)
    y = (x - mean.view(view)) * (var + module.eps).rsqrt().view(view)
    return [y.detach(), torch.autograd.grad((y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum(), x)[0]]


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shift", [7.5, 1e3, 1e6])  # the deviation is 2
def test_far_from_zero(shift, training):
    """Where torch's own kernel on a CPU is the difference of two large numbers."""
    x, module = batch(5, 2, shift=shift), twin(norm(affine=False)).train(training)
    module.running_mean += shift
    before = [module.running_mean.double(), module.running_var.double()]
    truth, naive = (by_the_book(module, x.detach().to(dtype).requires_grad_()) for dtype in (torch.float64, x.dtype))
    y = module(x)
    found = [y, torch.autograd.grad((y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum(), x)[0]]
    for result, exact, rough in zip(found, truth, naive, strict=True):
        assert_within_baseline(result.detach(), exact, rough)
    if training:  # they have moved once, whoever normalises
        wide = x.detach().double()
        for buffer, old, new in zip(
            (module.running_mean, module.running_var), before, (wide.mean((0, 2, 3)), wide.var((0, 2, 3))), strict=True
        ):
            torch.testing.assert_close(buffer.double(), old.lerp(new, 0.1), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("served")
def test_an_outlier_among_small_numbers():
    x = batch(5, 2, shift=0.0).detach()
    x[0, :, 0, 0] = 1e4
    assert_same_as_torch(norm(), x.requires_grad_(), run=several_steps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_half_inputs_with_float_parameters(dtype, training):
    results = assert_same_as_torch(norm().train(training), batch(4, 5, dtype=dtype))
    assert [result.dtype for result in results] == [dtype, dtype, torch.float32, torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str)
def test_to_dtype(dtype):
    batches = (batch(4, 5, dtype=dtype, seed=seed) for seed in range(2))
    assert_same_as_torch(norm().to(dtype), *batches, run=several_steps)


LAYOUTS = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "expanded": lambda x: x[:, :, :1].expand(-1, -1, 4, -1),
    "sliced": lambda x: torch.cat([x, x], 3)[:, :, :, ::2],
}


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_layouts(layout, training):
    x = layout(batch(4, 6).detach()).requires_grad_()
    module = norm().train(training)
    assert_same_as_torch(module, x, run=several_steps)
    if x.is_contiguous(memory_format=torch.channels_last):
        y = twin(module)(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        assert y.stride() == gradient.stride() == x.stride()


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("frozen", [("weight",), ("weight", "bias"), ("input",)])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_frozen(frozen, training):
    module, x = norm().train(training), batch(4, 5)
    for name in frozen:
        (x if name == "input" else getattr(module, name)).requires_grad_(False)
    assert_same_as_torch(module, x)


@pytest.mark.usefixtures("served")
def test_an_empty_batch_and_buffers_that_are_missing():
    for planes, x in ((1, torch.zeros(0, C)), (2, torch.zeros(2, C, 0, 4))):
        theirs, ours = norm(planes), twin(norm(planes))
        assert ours(x).shape == theirs(x).shape
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    for missing in (("num_batches_tracked",), ("running_mean", "running_var")):
        theirs, ours = norm(), twin(norm())
        for module in (theirs, ours):
            for name in missing:
                setattr(module, name, None)
        torch.testing.assert_close(ours(batch(4, 5)), theirs(batch(4, 5)))
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


REFUSED = {
    "one value a channel": (lambda m: None, torch.zeros(1, C, 1, 1), ValueError, "more than one value per channel"),
    "rank": (lambda m: None, torch.zeros(2, C), ValueError, r"input has rank 2 \[2, 3\], expected \[N, num_feat"),
    "channels": (lambda m: None, torch.zeros(2, 4, 5, 5), ValueError, "input has shape"),
    "no tensor": (lambda m: None, [1], TypeError, "input is list, expected a tensor"),
    "integers": (lambda m: None, torch.zeros(2, C, 5, 5, dtype=torch.int32), ValueError, "input is int32"),
    "half the buffers": (lambda m: setattr(m, "running_var", None), torch.zeros(2, C, 5, 5), ValueError, "running_var"),
}


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, training):
    change, x, kind, message = REFUSED[name]
    if name == "one value a channel" and not training:
        pytest.skip("has a meaning in evaluation")
    module = twin(norm()).train(training)
    change(module)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(kind, match=message):
        module(x)
    if name != "integers":  # torch counts it, too
        torch.testing.assert_close(module.state_dict(), before)


@pytest.mark.parametrize("planes", KINDS)
def test_convert_and_revert(planes):
    model = nn.Sequential(KINDS[planes](4))
    assert type(aclgrad.nn.convert(model)[0]) is getattr(aclgrad.nn, KINDS[planes].__name__)
    assert repr(model[0]) == repr(KINDS[planes](4))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied[0]) is type(model[0])
    synchronised = aclgrad.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model))
    assert type(synchronised[0]) is aclgrad.nn.SyncBatchNorm
    assert type(aclgrad.nn.revert(model)[0]) is KINDS[planes]


def test_compiled_in_one_graph():
    for training in (True, False):
        module = twin(norm()).train(training)
        compiled = torch.compile(copy.deepcopy(module), backend="aot_eager", fullgraph=True)
        for seed in range(2):
            expected, found = (outputs_and_gradients(m, batch(4, 5, seed=seed)) for m in (module, compiled))
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        torch.testing.assert_close(compiled._orig_mod.state_dict(), module.state_dict(), rtol=0, atol=0)
    torch._dynamo.reset()


def test_transforms():
    xs = Data(torch.float64).normal(2, 4, C)
    for training, options in ((True, {"track_running_stats": False}), (False, {})):
        theirs = norm(1, **options).double().train(training)
        ours = twin(theirs)
        for transform in (
            lambda m: func.vmap(m)(xs),
            lambda m: func.vmap(func.grad(lambda x: m(x).square().sum()))(xs),
            lambda m: func.jvp(m, (xs[0],), (xs[1],)),
            lambda m: func.hessian(lambda x: m(x).pow(3).sum())(xs[0]),
        ):
            torch.testing.assert_close(transform(ours), transform(theirs))
        names = [name for name, _ in ours.named_parameters()]

        def call(x, *values, module=ours, names=names):
            return func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

        leaves = (xs[0].clone().requires_grad_(), *(p.detach().requires_grad_() for p in ours.parameters()))
        torch.autograd.gradcheck(call, leaves, fast_mode=True)
        torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


class Named(torch.Tensor):
    """A subclass that changes nothing."""


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("training", [True, False])
def test_the_output_may_be_written_over(training):
    """As nn.ReLU(inplace=True) does behind most batch norms."""
    module = nn.Sequential(aclgrad.nn.convert(norm().train(training)), nn.ReLU(inplace=True))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = batch(4, 5)
    expected = torch.autograd.grad(torch.relu(module[0](x)).square().sum(), [x, *module.parameters()])
    assert type(module(x.as_subclass(Named))) is Named
    for call in (module, compiled, lambda x: module(x.as_subclass(Named))):
        found = torch.autograd.grad(call(x).square().sum(), [x, *module.parameters()])
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.as_subclass(torch.Tensor), other, rtol=1e-6, atol=1e-6)
    _, slope = func.vjp(lambda x: torch.relu_(module[0].eval()(x)), x)
    assert slope(torch.ones(6, C, 4, 5))[0].shape == x.shape
