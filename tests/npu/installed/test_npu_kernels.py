"""Ops of torch on the device "npu" are computed by this package where it has them, and all give torch's results."""

import random

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

import aclgrad.nn
from aclgrad import torch_npu
from aclgrad.frontends.npu import fallback
from aclgrad.ops.lstm import composed
from aclgrad.testing.cases import Data

SAMPLES = 8


def pairs(module, *arguments):
    """(results, gradients) of a module and its arguments, here and on the device."""
    for place in ("cpu", "npu"):
        module, moved = module.to(place), [a.detach().to(place) for a in arguments]
        leaves = [a.requires_grad_() for a in moved if a.is_floating_point()]
        module.zero_grad()
        results = module(*moved)
        results = results if isinstance(results, tuple) else (results,)
        wanted = [*leaves, *(p for p in module.parameters() if p.requires_grad)]
        upstream = [torch.linspace(1, 2, r.numel(), device=r.device).view(r.shape) for r in results]
        gradients = torch.autograd.grad(results, wanted, upstream)
        assert {t.device.type for t in (*results, *gradients)} == {place}
        yield [t.detach().cpu() for t in (*results, *gradients)]


class Cell(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, h, c):
        return self.cell(x, (h, c))


def test_torchs_ops_are_ours(monkeypatch):
    """A wrapper counts the calls of the families' functions."""
    calls = []

    def counted(op, kernel):
        def count(*args, **options):
            calls.append(op._schema.name.partition("::")[2])
            return kernel(*args, **options)

        return count

    known = {op: counted(op, kernel) for op, kernel in fallback.kernels().items()}
    facts = fallback._Facts
    monkeypatch.setattr(facts, "of", lambda op, of=facts.of: of(op)._replace(kernel=known.get(op, op)))
    data = Data()
    x = data.normal(4, 3, 5)
    for module, arguments, expected in (
        (nn.Hardsigmoid(), [3 * x], {"hardsigmoid", "hardsigmoid_backward"}),
        (Cell(nn.LSTMCell(3, 5)), [data.normal(2, 3), data.normal(2, 5), data.normal(2, 5)],
         {"_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl"}),
        (nn.GRU(5, 4, 2, bidirectional=True), [x], {"_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward"}),
        (nn.ConvTranspose1d(3, 4, 2, groups=1), [x], {"convolution_overrideable", "convolution_backward_overrideable"}),
        (nn.Conv1d(3, 6, 2, groups=3, bias=False), [x], {"convolution_overrideable"}),
    ):  # fmt: skip
        calls.clear()
        here, there = pairs(module, *arguments)
        assert_close(there, here)
        assert expected <= set(calls)
    z = x.npu()
    mean, invstd = torch.batch_norm_stats(z, 1e-5)
    assert_close(mean.cpu(), x.mean((0, 2)))
    weight, count = torch.ones(3, device="npu"), torch.full((1,), 20, dtype=torch.int32, device="npu")
    sums = torch.batch_norm_backward_reduce(z, z, mean, invstd, weight, True, True, True)
    y = torch.batch_norm_elemt(z, weight, None, mean, invstd, 1e-5)
    dx = torch.batch_norm_backward_elemt(z, z, mean, invstd, weight, *sums[:2], count)
    leaf = x.detach().requires_grad_()
    expected = nn.functional.batch_norm(leaf, None, None, training=True)
    assert_close(y.cpu(), expected.detach())
    assert_close(dx.cpu(), torch.autograd.grad(expected, leaf, x)[0], rtol=1e-4, atol=1e-5)
    total, _ = torch.batch_norm_gather_stats_with_counts(
        z, mean[None], invstd[None], None, None, 0.1, 1e-5, count + 0.0
    )
    assert_close(total, mean)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("seed", range(SAMPLES))
def test_lstm(seed, monkeypatch):
    """Whatever its options: results and gradients as on the processor; by one operator unless it lacks an option."""
    choice = random.Random(seed)
    layers, proj = choice.choice([1, 2]), choice.choice([0, 0, 0, 2])
    options = {name: choice.random() < 0.5 for name in ("bias", "batch_first", "bidirectional")}
    steps, batch, packs = choice.choice([1, 5]), choice.choice([1, 4]), choice.random() < 0.5
    module = nn.LSTM(3, 4, layers, proj_size=proj, **options)
    data, chains = Data(seed=seed), layers * (1 + options["bidirectional"])
    lengths = torch.tensor([choice.randint(1, steps) for _ in range(batch)])
    lengths[choice.randrange(batch)] = steps

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = module

        def forward(self, x, h, c):
            if not packs:
                y, (h, c) = self.lstm(x, (h, c))
                return y, h, c
            first = options["batch_first"]
            y, (h, c) = self.lstm(pack_padded_sequence(x, lengths, first, enforce_sorted=False), (h, c))
            return pad_packed_sequence(y, first)[0], h, c

    used, whole = [], composed._whole
    monkeypatch.setattr(composed, "_whole", lambda *args: used.append(1) or whole(*args))
    shape = (batch, steps, 3) if options["batch_first"] else (steps, batch, 3)
    x, h, c = data.normal(*shape), data.normal(chains, batch, proj or 4), data.normal(chains, batch, 4)
    here, there = pairs(Packed(), x, h, c)
    assert_close(there, here)
    assert bool(used) == (not proj)


def test_aclgrads_modules_and_functions():
    """They take tensors of the device, too, and refuse the same."""
    torch.manual_seed(0)
    data = Data()
    for module, x in (
        (aclgrad.nn.LSTM(5, 4, bidirectional=True), data.normal(3, 2, 5)),
        (aclgrad.nn.SyncBatchNorm(5), data.normal(3, 5)),
        (aclgrad.nn.Hardsigmoid(), data.normal(3, 5)),
    ):
        flat = nn.Sequential(module)
        flat.forward = lambda v, of=module: of(v)[0] if isinstance(of, aclgrad.nn.LSTM) else of(v)
        here, there = pairs(flat, x)
        assert_close(there, here)
    x = data.normal(3, 4).npu()
    assert torch.equal(aclgrad.hardsigmoid_backward(x, x).cpu(), aclgrad.hardsigmoid_backward(x.cpu(), x.cpu()))
    out = torch.empty_like(x)
    assert aclgrad.hardsigmoid(x, out=out) is out
    with pytest.raises(aclgrad.InvalidArgument, match="x is on cpu, expected npu:0"):
        aclgrad.hardsigmoid_backward(x, x.cpu())
    with pytest.raises(aclgrad.InvalidArgument, match=r"x has shape \[4, 3\]"):
        aclgrad.hardsigmoid_backward(x, x.t())


class LinearCrossEntropy(torch.autograd.Function):
    """The calls that verl's wrapper of the three fused functions makes, in its order and with its arguments."""

    NAMES = (
        ("npu_fused_linear_online_max_sum", "fused_linear_online_max_sum"),
        ("npu_fused_cross_entropy_loss_with_max_sum", "fused_cross_entropy_loss_with_max_sum"),
        ("npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
         "npu_fused_linear_cross_entropy_loss_with_max_sum_grad"),
    )  # fmt: skip

    @classmethod
    def functions(cls):
        import torch_npu as vendor

        return [next(f for f in (getattr(vendor, name, None) for name in names) if callable(f)) for names in cls.NAMES]

    @staticmethod
    def forward(ctx, hidden, weight, labels, temperature, keep_logits):
        assert hidden.device.type == "npu"
        first, second, _ = LinearCrossEntropy.functions()
        hidden_in = hidden.to(torch.bfloat16).contiguous() * (1.0 / temperature)
        weight_in, targets = weight.to(torch.bfloat16).contiguous(), labels.to(torch.int32).contiguous()
        top, total, predicted, mask, row, logits = first(hidden_in, weight_in, targets, 0, len(weight), keep_logits)
        given = {"vocab_parallel_logits": logits} if keep_logits and logits.numel() > 0 else {}
        loss, softmax = second(top, total, predicted, label_smoothing=0.0, **given)
        if softmax is None or softmax.numel() == 0:
            entropy = torch.zeros(len(hidden), device=hidden.device, dtype=torch.float32)
        else:
            entropy = -(softmax * torch.log(softmax.clamp_min(1e-12))).sum(dim=-1)
        ctx.save_for_backward(hidden_in, weight_in, mask, row, top, total, softmax)
        ctx.temperature, ctx.dtypes = temperature, (hidden.dtype, weight.dtype)
        return (-loss).reshape(-1).contiguous(), entropy.reshape(-1).contiguous()

    @staticmethod
    def backward(ctx, dlogprobs, dentropy):
        hidden, weight, mask, row, top, total, softmax = ctx.saved_tensors
        assert not torch.any(dentropy != 0)
        *_, last = LinearCrossEntropy.functions()
        dx, dw = last(-dlogprobs, hidden, weight, mask, row, 0.0, top, total, softmax)
        return (dx * (1.0 / ctx.temperature)).to(ctx.dtypes[0]), dw.to(ctx.dtypes[1]), None, None, None


@pytest.mark.parametrize("keep_logits", [False, True])
def test_verls_calls(keep_logits):
    data = Data()
    x, weight = (data.normal(*shape).to(torch.bfloat16) for shape in ((19, 16), (24, 16)))
    labels = data.integers(0, 24, 19)
    leaves = [t.npu().requires_grad_() for t in (x, weight)]
    logprobs, entropy = LinearCrossEntropy.apply(*leaves, labels.npu(), 2.0, keep_logits)
    logprobs.sum().backward()
    truth = [t.double().requires_grad_() for t in (x, weight)]
    logits = (truth[0] @ truth[1].t() / 2).log_softmax(-1)
    expected = logits.gather(1, labels[:, None])[:, 0]
    expected.sum().backward()
    assert_close(logprobs.double().cpu(), expected.detach(), rtol=1e-2, atol=1e-2)
    for ours, theirs in zip(leaves, truth, strict=True):
        assert_close(ours.grad.double().cpu(), theirs.grad, rtol=2e-2, atol=2e-2)
    if keep_logits:
        assert_close(entropy.double().cpu(), -(logits.exp() * logits).sum(-1).detach(), rtol=1e-2, atol=1e-2)


def test_torch_npus_functions():
    """On tensors of the device: differentiable where they are, and equal to those of the processor."""
    data = Data()
    options = (True, 1, 0.0, True, False, False, True, True)
    operands = [data.normal(*shape) for shape in ((5, 2, 3), (7, 16), (16,), (1, 2, 4), (1, 2, 4))]
    mask = torch.tensor([[1.0, 1.0]] * 3 + [[1.0, 0.0]] * 2)[..., None].expand(5, 2, 4)
    found = []
    for place in ("cpu", "npu"):
        x, weight, bias, h, c = (t.to(place).requires_grad_() for t in operands)
        y, *others = torch_npu.npu_lstm(x, weight, bias, mask.to(place), h, c, *options)
        found.append([t.cpu() for t in (y, *others, *torch.autograd.grad(y.sum(), [x, weight, bias, h, c]))])
    assert all(torch.equal(here, there) for here, there in zip(*found, strict=True))
    sums = torch_npu.batch_norm_reduce(operands[0].npu(), 1e-5)
    assert all(value.is_npu for value in sums)
