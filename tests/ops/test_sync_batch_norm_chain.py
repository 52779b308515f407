"""The steps of a synchronised layer in a row: they give what batch norm of the whole batch gives, and its gradients."""

import pytest
import torch
import torch.nn.functional as F

import aclgrad
from aclgrad.ops.sync_batch_norm import reference

EPS, MOMENTUM = 1e-5, 0.3
SHARDS = {"one": [6], "three": [1, 3, 2], "with_an_empty_one": [2, 0, 4]}
BACKENDS = ["cpu", "reference"]


class Layer:
    """W processes in one: what each would compute, and sums where they would communicate."""

    def __init__(self, x, weight, bias, sizes, backend):
        self.shards, self.weight, self.bias, self.backend = x.split(sizes), weight, bias, backend
        self.counts = torch.tensor([shard.numel() // x.shape[1] for shard in self.shards], dtype=x.dtype)

    def forward(self, running_mean, running_var):
        local = [aclgrad.batch_norm_stats(shard, EPS, backend=self.backend) for shard in self.shards]
        seen = [k for k, count in enumerate(self.counts) if count]  # as nn.SyncBatchNorm leaves out empty processes
        mean, invstd = (torch.stack([local[k][i] for k in seen]) for i in (0, 1))
        self.mean, self.invstd = aclgrad.batch_norm_gather_stats_with_counts(
            self.shards[0], mean, invstd, running_mean, running_var, MOMENTUM, EPS, self.counts[seen],
            backend=self.backend,
        )  # fmt: skip
        vectors = (self.weight, self.bias, self.mean, self.invstd, EPS)
        return torch.cat([aclgrad.batch_norm_elemt(shard, *vectors, backend=self.backend) for shard in self.shards])

    def backward(self, grad):
        grads = grad.split([len(shard) for shard in self.shards])
        sums = [
            aclgrad.batch_norm_reduce_backward(
                g, x, self.mean, self.invstd, self.weight, True, True, True, backend=self.backend
            )
            for g, x in zip(grads, self.shards, strict=True)
        ]
        sum_dy, sum_dy_xmu, grad_weight, grad_bias = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
        vectors = (self.mean, self.invstd, self.weight, sum_dy, sum_dy_xmu, self.counts)
        grad_input = [
            aclgrad.batch_norm_elemt_backward(g, x, *vectors, backend=self.backend)
            for g, x in zip(grads, self.shards, strict=True)
        ]
        return torch.cat(grad_input), grad_weight, grad_bias


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5), (6, 4, 5, 2)], ids=str)
@pytest.mark.parametrize("sizes", SHARDS.values(), ids=SHARDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_batch_norm_of_the_whole_batch(backend, sizes, shape, affine):
    """Forward, backward and running statistics against F.batch_norm and autograd in float64."""
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * 2 + 1).requires_grad_()
    weight, bias = (torch.randn(4, dtype=torch.float64, requires_grad=True) if affine else None for _ in range(2))
    running = [torch.randn(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64) + 0.5]
    expected_running = [tensor.clone() for tensor in running]
    y = F.batch_norm(x, *expected_running, weight, bias, True, MOMENTUM, EPS)
    grad = torch.randn_like(y)
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    gradients = torch.autograd.grad(y, leaves, grad)

    data = [None if leaf is None else leaf.detach() for leaf in (x, weight, bias)]
    layer = Layer(*data, sizes, backend)
    torch.testing.assert_close(layer.forward(*running), y.detach())
    torch.testing.assert_close(running, expected_running)
    for got, want in zip(layer.backward(grad), gradients, strict=False):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_a_training_step_in_every_dtype(last, dtype):
    """Statistics and sums stay in float32, as torch keeps them; the results have the input's dtype and layout."""
    torch.manual_seed(1)
    x, grad = (torch.randn(8, 5, 6, 7).to(dtype) for _ in range(2))
    if last:
        x, grad = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, grad))
    weight, bias, running_mean, running_var = torch.rand(5) + 0.5, torch.randn(5), torch.zeros(5), torch.ones(5)
    layer = Layer(x, weight, bias, [3, 5], "cpu")
    layer.counts = layer.counts.float()
    y = layer.forward(running_mean, running_var)
    grad_input, grad_weight, grad_bias = layer.backward(grad)
    assert y.dtype == grad_input.dtype == dtype
    assert layer.mean.dtype == layer.invstd.dtype == grad_weight.dtype == grad_bias.dtype == torch.float32

    wide = x.double().requires_grad_()
    leaves = [wide, weight.double().requires_grad_(), bias.double().requires_grad_()]
    want = F.batch_norm(wide, None, None, leaves[1], leaves[2], True, MOMENTUM, EPS)
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
    torch.testing.assert_close(y.double(), want.detach(), **tolerance)
    wanted = torch.autograd.grad(want, leaves, grad.double())
    torch.testing.assert_close(grad_input.double(), wanted[0], **tolerance)
    for got, expected in zip((grad_weight, grad_bias), wanted[1:], strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-4)


def test_the_statistics_of_a_single_process_come_back():
    """With one process the union is the process: eps is taken out and put in again without a trace."""
    torch.manual_seed(2)
    x = torch.randn(16, 7, 5) * torch.tensor([1e-3, 1e-2, 0.1, 1, 10, 100, 1000])[:, None]
    mean, invstd = aclgrad.batch_norm_stats(x, EPS)
    united = aclgrad.batch_norm_gather_stats_with_counts(
        x, mean[None], invstd[None], None, None, 0.1, EPS, torch.tensor([80.0])
    )
    torch.testing.assert_close(united, (mean, invstd), rtol=2e-7, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_running_statistics_are_left_alone_without_a_process_or_a_running_mean(backend):
    x, running_var = torch.randn(3, 4), torch.rand(4)
    before = running_var.clone()
    nothing, table = torch.zeros(0, 4), torch.rand(2, 4) + 1
    mean, invstd = aclgrad.batch_norm_gather_stats_with_counts(
        x, nothing, nothing, torch.zeros(4), running_var, 0.1, EPS, torch.zeros(0), backend=backend
    )
    assert torch.equal(mean, torch.zeros(4)) and bool(invstd.isnan().all())
    assert torch.equal(running_var, before)
    aclgrad.batch_norm_gather_stats_with_counts(
        x, table, table, None, running_var, 0.1, EPS, torch.tensor([2.0, 3.0]), backend=backend
    )
    assert torch.equal(running_var, before)


def test_the_reference_is_torchs_batch_norm():
    torch.manual_seed(3)
    x, weight = torch.randn(5, 3, 4, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    y, mean, invstd, *_ = reference.batch_norm(x, weight, None, None, None, 0.1, EPS)
    want, want_mean, want_invstd = torch.native_batch_norm(x, weight, None, None, None, True, 0.0, EPS)
    torch.testing.assert_close((y, mean, invstd), (want, want_mean, want_invstd))
