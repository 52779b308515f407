"""What ranks check of batch norm: each compares with torch's BatchNorm of the whole batch, alone and in float64."""

import copy
import io
import warnings

import torch
import torch.distributed as dist
from head_checks import Counted, bits
from torch import nn
from torch.autograd import forward_ad
from torch.nn.parallel import DistributedDataParallel

import aclgrad.nn
from aclgrad.core.errors import Unsupported
from aclgrad.ops.sync_batch_norm import ranks as over_ranks

SyncBatchNorm = aclgrad.nn.SyncBatchNorm
CLOSE = {
    torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2),
    torch.float32: (1e-5, 2e-6), torch.float64: (1e-12, 1e-13),
}  # fmt: skip
"""By dtype, relative and absolute."""


def close(found, expected, dtype, label=""):
    rtol, atol = CLOSE[dtype]
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=rtol, atol=atol * scale, msg=lambda why: f"{label}: {why}"
    )


def layers(channels, **options):
    """A layer of ours and torch's of the same parameters and statistics, the latter in float64."""
    torch.manual_seed(7)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[options.pop("rank", 4)]
    whole = kind(channels, **options)
    for parameter in whole.parameters():
        nn.init.normal_(parameter)
    if whole.track_running_stats:
        whole.running_mean.normal_()
        whole.running_var.uniform_(0.5, 2.0)
    ours = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    return ours, whole.double()


def against_the_whole(rank, group, sizes, shape, dtype, layout=torch.contiguous_format, steps=2, offset=0.0, **options):
    """Some steps on batches of these sizes, one for each rank: outputs, gradients, buffers."""
    channels, label = shape[0], f"{sizes} {shape} {dtype} {layout} {options}"
    ours, whole = layers(channels, rank=len(shape) + 1, **options)
    ours.process_group = group
    if dtype == torch.float64:
        ours = ours.double()
    start, stop = sum(sizes[:rank]), sum(sizes[: rank + 1])
    seen = []
    for step in range(steps):
        draw = torch.Generator().manual_seed(step)
        x = (torch.randn(sum(sizes), *shape, generator=draw, dtype=torch.float64) * 2 + 1 + offset).to(dtype)
        grad = torch.randn(x.shape, generator=draw, dtype=torch.float64).to(dtype)
        theirs = x.double().requires_grad_()
        want = whole(theirs) if x.numel() else None
        mine = x.detach()[start:stop].contiguous(memory_format=layout).requires_grad_()
        y = ours(mine)
        assert y.dtype == dtype and y.stride() == mine.stride() and y.shape == mine.shape, label
        y.backward(grad[start:stop])
        assert mine.grad.dtype == dtype and mine.grad.stride() == mine.stride(), label
        if want is not None:
            want.backward(grad.double())
            close(y.detach(), want.detach()[start:stop], dtype, label)
            close(mine.grad, theirs.grad[start:stop], dtype, label)
    for name, buffer in ours.named_buffers():
        close(buffer, getattr(whole, name), torch.float32, f"{label} {name}")
    for name, parameter in ours.named_parameters():
        total = parameter.grad.clone()
        dist.all_reduce(total, group=group)
        expected = getattr(whole, name).grad
        close(total, torch.zeros_like(total) if expected is None else expected, max_of(dtype), f"{label} {name}")
    seen += [ours.running_mean, ours.running_var] if ours.track_running_stats else []
    return bits(seen)


def max_of(dtype):
    """What sums over a batch of this dtype are as close as."""
    return torch.float32 if dtype == torch.float32 else dtype


CASES = (
    ((3, 5), (4, 6, 7), torch.float32, {}),
    ((1, 1, 1), (3,), torch.float32, {}),  # one value per channel on every rank
    ((2, 2), (2,), torch.float64, {}),
    ((4, 0, 3), (4, 5), torch.float32, {"affine": False}),
    ((0, 4), (4, 2, 3), torch.float16, {}),
    ((2, 0, 0, 5), (4, 2, 3), torch.bfloat16, {}),
    ((0, 6), (4, 2, 3), torch.float64, {"momentum": None}),
    ((5, 1, 2, 3), (3, 4, 4), torch.float32, {"track_running_stats": False}),
    ((3, 2), (4, 3, 5), torch.float32, {"layout": torch.channels_last, "momentum": 0.99}),
    ((3, 2), (4, 3, 2, 5), torch.float32, {"layout": torch.channels_last_3d, "momentum": 0.99}),
    ((2, 3, 1), (4, 3, 5), torch.float16, {"layout": torch.channels_last}),
    ((10, 100, 1000, 10000), (2,), torch.float64, {"momentum": 0.99, "steps": 5}),
    ((300, 200), (3, 7), torch.float32, {"offset": 50.0, "eps": 1e-12}),
    ((7, 1), (3, 7), torch.float32, {"momentum": None, "steps": 4}),
)  # fmt: skip


def equal_to_the_whole_batch(rank, groups):
    """Uneven and empty batches, one value a rank, dtypes, layouts, options, in groups of two to four."""
    found = []
    for sizes, shape, dtype, options in CASES:
        if rank < len(sizes):
            found.append(against_the_whole(rank, groups[len(sizes)], sizes, shape, dtype, **options))
        else:
            found.append(None)
    return found


def nobody_has_anything(rank, groups):
    """No NaN in outputs, gradients or statistics, with and without a gradient of the input."""
    for trained in (True, False):
        for first in (0, 3):  # rank 0 alone has something, or nobody
            ours, _ = layers(4)
            before = copy.deepcopy(ours.state_dict())
            x = torch.randn(first if rank == 0 else 0, 4, 2, 2, requires_grad=trained)
            y = ours(x)
            y.sum().backward()
            assert y.shape == x.shape and not y.isnan().any()
            assert not any(parameter.grad.isnan().any() for parameter in ours.parameters())
            if not trained:
                assert x.grad is None
            if first == 0:
                after = ours.state_dict()
                assert torch.equal(after["running_mean"], before["running_mean"])
                assert torch.equal(after["running_var"], before["running_var"])
            assert not ours.running_mean.isnan().any() and ours.num_batches_tracked == 1


class Net(nn.Module):
    """A layer before, the norm in the middle, a layer behind."""

    def __init__(self, affine=True, convolution=False):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1) if convolution else nn.Linear(2, 40, bias=False)
        self.norm = (nn.BatchNorm2d if convolution else nn.BatchNorm1d)(4, affine=affine)
        self.last = nn.Linear(4 if convolution else 40, 4, bias=False)

    def forward(self, x):
        y = self.first(x)
        if y.dim() == 4:
            return self.last(self.norm(y).mean((2, 3)))
        return self.last(self.norm(y.view(-1, 4, 10)).flatten(1))


def wrapped(rank, groups):
    """Under DistributedDataParallel, saved and loaded: the parameters of one process with the whole batch."""
    for affine, steps in ((True, 5), (False, 2)):
        torch.manual_seed(0)
        alone = Net(affine).double()
        ours = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
        assert type(ours.norm) is SyncBatchNorm
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of some versions
            model = DistributedDataParallel(ours)
            file = io.BytesIO()
            torch.save(model, file)
            model = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        optimisers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, model)]
        for step in range(steps):
            draw = torch.Generator().manual_seed(step)
            x, target = (torch.randn(8, size, generator=draw, dtype=torch.float64) for size in (2, 4))
            mine = slice(2 * rank, 2 * rank + 2)
            for each, optimiser, part in ((alone, optimisers[0], slice(None)), (model, optimisers[1], mine)):
                optimiser.zero_grad()
                nn.functional.mse_loss(each(x[part]), target[part]).backward()
                optimiser.step()
        for (name, one), other in zip(alone.state_dict().items(), model.module.state_dict().values(), strict=True):
            torch.testing.assert_close(other, one, msg=lambda why, name=name: f"{name}: {why}")


def wrapped_with_an_empty_rank(rank, groups):
    """A convolution before and a linear layer behind; rank 0 has nothing, then nobody."""
    torch.manual_seed(0)
    model = DistributedDataParallel(SyncBatchNorm.convert_sync_batchnorm(Net(convolution=True)))
    for sizes in ((0, 2, 3, 1), (0, 0, 0, 0)):
        loss = model(torch.randn(sizes[rank], 3, 4, 4)).square().sum()
        loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def uneven_inputs(rank, groups):
    """Under `join` all ranks stop at the same step, by an error that all of them get."""
    model = DistributedDataParallel(SyncBatchNorm.convert_sync_batchnorm(Net()))
    done = 0
    try:
        with model.join(throw_on_early_termination=True):
            for _ in range(3 + rank):
                model(torch.ones(2, 2)).sum().backward()
                done += 1
    except RuntimeError as error:
        assert "exhausted" in str(error), error
    else:
        raise AssertionError("nobody was stopped")
    return done, bits(model.state_dict().values())


def counted(rank, groups):
    """The collectives of a step in training, of one without a gradient of the input, of an evaluation."""
    ours, _ = layers(4)
    x = torch.randn(3, 4, 2, requires_grad=True)
    with Counted() as forward:
        y = ours(x)
    with Counted() as backward:
        y.sum().backward()
    with Counted() as alone:
        ours(x.detach()).sum().backward()
    with Counted() as evaluated:
        ours.eval()(x).sum().backward()
    calls = [[name for name, _ in each.calls] for each in (forward, backward, alone, evaluated)]
    many = SyncBatchNorm(40000)
    z = many(torch.randn(2, 40000, requires_grad=True))
    with Counted() as large:
        z.sum().backward()
    return [*calls, [name for name, _ in large.calls]]


def evaluated_alone(rank, groups):
    """Without running statistics, by rank 0 alone: its own batch, and no collective."""
    if rank == 0:
        ours = SyncBatchNorm(3, track_running_stats=False).eval()
        x = torch.randn(5, 3)
        close(ours(x).detach(), nn.BatchNorm1d(3, track_running_stats=False)(x).detach(), torch.float32)


def under_autocast(rank, groups):
    """The float16 of a convolution on ranks that have something, float32 on one that has nothing."""
    ours, _ = layers(4)
    x = torch.randn(0 if rank == 0 else 2, 3, 4, 4, dtype=torch.float32)
    before = nn.Conv2d(3, 4, 1)
    with torch.autocast("cpu", torch.bfloat16):
        y = before(x)
        y = ours(y.float() if rank == 0 else y)
    y.float().sum().backward()
    assert y.dtype == (torch.float32 if rank == 0 else torch.bfloat16)
    assert before.weight.grad.isfinite().all()


def a_half_model(rank, groups):
    """All of it in float16, parameters too."""
    ours = SyncBatchNorm(4).half()
    y = ours(torch.randn(3, 4, 5).half())
    y.float().sum().backward()
    assert y.dtype == ours.weight.grad.dtype == ours.bias.grad.dtype == torch.float16


def differentiated_once(rank, groups):
    """A second derivative and forward mode are refused; torch would take the sums over ranks for constants."""
    ours, _ = layers(4)
    x = torch.randn(3, 4, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(ours(x).square().sum(), x, create_graph=True)
    for wrong in (slope.square().sum().backward, lambda: forward_mode(ours, x)):
        try:
            wrong()
        except Unsupported as refusal:
            assert "over several processes" in str(refusal)
        else:
            raise AssertionError("it was not refused")


def forward_mode(module, x):
    with forward_ad.dual_level():
        module(forward_ad.make_dual(x.detach(), torch.ones_like(x)))


def subgroups(rank, groups):
    """Two groups of two ranks each, at the same time."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group, (first, second) = pairs[rank // 2], ((0, 1), (2, 3))[rank // 2]
    draw = torch.Generator().manual_seed(1)
    parts = torch.randn(4, 3, 2, generator=draw, dtype=torch.float64).unbind()
    ours = SyncBatchNorm(2, process_group=group).double()
    want = nn.BatchNorm1d(2).double()(torch.cat([parts[first], parts[second]])).detach()
    close(ours(parts[rank]).detach(), want[:3] if rank == first else want[3:], torch.float64)


def a_mean_a_million_times_the_deviation(rank, groups):
    """Uneven parts; the running variance of the whole to the last digits of what the values themselves have."""
    draw = torch.Generator().manual_seed(3)
    parts = [(torch.randn(size, 2, generator=draw, dtype=torch.float64) + 1e6).float() for size in (5, 0, 300, 77)]
    ours = SyncBatchNorm(2, momentum=1.0)
    ours(parts[rank])
    whole = torch.cat(parts).double()
    torch.testing.assert_close(ours.running_var.double(), whole.var(0), rtol=4e-3, atol=0)  # means are sent in float32
    torch.testing.assert_close(ours.running_mean.double(), whole.mean(0), rtol=1e-7, atol=0)


def a_count_that_float32_does_not_hold(rank, groups):
    """2^24 + 1 and more: two numbers hold it."""
    for count in (1, 4095, 2**22, 2**24 + 1, 3 * 2**40 + 5):
        high, low = divmod(count, over_ranks.COUNT)
        row = torch.tensor([[0.0, 1.0, float(high), float(low)]])
        assert over_ranks.unpacked(row)[2].tolist() == [count]
