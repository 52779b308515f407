"""Small batch norms: whom they are given to, and that it is as exact there."""

import copy

import pytest
import torch
from torch import nn

import aclgrad.nn
from aclgrad.ops._shared import small
from aclgrad.ops.sync_batch_norm.small import NEAR
from aclgrad.testing.cases import Data

C = 4
TORCHS, OURS, FIXED = "NativeBatchNormBackward0", "TrainedBackward", "batch_norm_elemtBackward"
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def served(monkeypatch):
    monkeypatch.setattr(small, "enabled", True)


def norm(training, mean=0.0, **options):
    """One whose running mean lies so many deviations from zero."""
    module = aclgrad.nn.BatchNorm1d(C, **options).train(training)
    if module.affine:
        module.weight.data, module.bias.data = Data(seed=1).normal(C), Data(seed=2).normal(C)
    if module.track_running_stats:
        module.running_var.copy_(Data(seed=3).uniform(0.5, 2.0, C))
        module.running_mean.copy_(mean * (module.running_var + module.eps).sqrt())
    return module


def batch(dtype=torch.float32, mean=0.0):
    return (Data(torch.float64).normal(64, C) + mean).to(dtype).requires_grad_()


def node(module, x):
    return type(module(x).grad_fn).__name__


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
def test_whom_a_batch_is_given_to(dtype):
    wide = dtype not in HALVES
    pure, mixed = (norm(True).to(dtype), norm(True).to(dtype if wide else torch.float32))
    x, far = batch(dtype), batch(dtype, 2 * NEAR)
    assert node(pure, x) == (TORCHS if wide else OURS)  # torch would round the batch's statistics to half precision
    assert (node(mixed, x), node(mixed, far)) == (TORCHS, OURS)
    bare = norm(True, affine=False, track_running_stats=False)
    assert node(bare, x) == (TORCHS if wide else OURS)
    assert {node(mixed, batch(dtype)[:count]) for count in (2, 3)} == {OURS}
    for module in (pure.eval(), mixed.eval()):
        assert node(module, x) == node(module, far) == TORCHS


@pytest.mark.parametrize("side", [-1, 1])
def test_running_statistics_tell_before(side):
    near, far = (norm(False, side * NEAR * share) for share in (0.99, 1.01))
    x = batch()
    assert node(near, x) == TORCHS != node(far, x)
    assert node(far.bfloat16(), x.detach().bfloat16().requires_grad_()) == FIXED
    far.running_var[2] = torch.nan
    assert bool(far.float()(x)[:, 2].isnan().all())


def test_what_else_torch_does_not_get():
    x = batch()
    module = norm(False)
    module.running_mean.requires_grad_()  # its own kernel has no gradient of it
    assert torch.autograd.grad(module(x).sum(), module.running_mean)[0] is not None
    with torch.autocast("cpu"):
        assert node(norm(False), x) == FIXED
    assert node(norm(False).double(), batch(torch.float32)) == FIXED


def found_by(module, x, upstream):
    y = module(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], upstream)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("training", "pure"), [(False, True), (False, False), (True, False)])
def test_half_types_are_rounded_once(dtype, training, pure):
    """Up to 2 units in the last place of every single element: what is rounded twice has more near zero."""
    module, x = norm(training, 1.5), batch(dtype, 1.5)
    module = module.to(dtype) if pure else module
    upstream = torch.randn(x.shape).to(dtype)
    truth = found_by(copy.deepcopy(module).double(), x.detach().double().requires_grad_(), upstream.double())
    assert node(module, x) == TORCHS
    for result, true in zip(found_by(module, x, upstream)[:2], truth, strict=False):
        info = torch.finfo(dtype)
        unit = 2 ** torch.log2(true.abs().clamp(min=info.smallest_normal)).floor() * info.eps
        assert float(((result.double() - true).abs() / unit).max()) <= 2


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_running_statistics_stay_what_they_are_in_evaluation(training):
    module = norm(training)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module(batch())
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name]) != training


def test_derivatives_of_every_order_in_evaluation():
    module = norm(False, 1.0).double()
    x, own = batch(torch.float64), norm(False, 1.0).double()

    def by_the_book(x):
        scale = (own.running_var + own.eps).rsqrt() * own.weight
        return (x - own.running_mean) * scale + own.bias

    def chain(call, parameters):
        found, loss = [], (call(x) ** 3).sum()
        for _ in range(4):
            slopes = torch.autograd.grad(loss, [x, *parameters], create_graph=True, allow_unused=True)
            slopes = [slope for slope in slopes if slope is not None]
            found += [slope.detach() for slope in slopes]
            loss = sum(slope.square().sum() for slope in slopes)
        return found

    assert node(module, x) == TORCHS
    for one, other in zip(chain(module, module.parameters()), chain(by_the_book, own.parameters()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean", "running_var"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", [(C - 1,), (C + 1,), (C, 1), ()], ids=str)
def test_vectors_that_do_not_fit_are_refused_in_words(name, training, shape):
    """Torch's operation would read and write beside them."""
    module, value = norm(training), torch.ones(shape)
    setattr(module, name, nn.Parameter(value) if name in ("weight", "bias") else value)
    with pytest.raises(aclgrad.InvalidArgument, match=name):
        module(batch())
