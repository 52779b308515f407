"""What is peculiar to batch norm: the proof by autograd of the whole bracket, every mix of dtypes, counters."""

import pytest
import torch
from mixes import mixes

import aclgrad
from aclgrad.ops.sync_batch_norm import reference
from aclgrad.testing import assert_within_baseline

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def sums(grad, x, mean):
    axes = [0, *range(2, x.dim())]
    return grad.sum(axes), (grad * (x - reference.along_channels(mean, x))).sum(axes)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(9, 4), (3, 4, 5), (3, 4, 5, 2)])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_is_the_gradient_of_batch_norm(shape, weighted, backend):
    """In float64 with random statistics; the document's printed bracket would miss by far."""
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * 2 + 1).requires_grad_()
    weight = torch.randn(4, dtype=torch.float64) if weighted else None
    y, mean, invstd, *_ = reference.batch_norm(x, weight, None, None, None, 0.1, 1e-5)
    grad = torch.randn_like(y)
    (want,) = torch.autograd.grad(y, x, grad)
    data = x.detach()
    sum_dy, sum_dy_xmu = sums(grad, data, mean.detach())
    got = aclgrad.batch_norm_elemt_backward(
        grad, data, mean.detach(), invstd.detach(), weight, sum_dy, sum_dy_xmu, data.numel() // 4, backend=backend
    )
    torch.testing.assert_close(got, want)


def test_processes_together_give_the_gradient_of_the_whole_batch():
    torch.manual_seed(1)
    x = torch.randn(8, 3, 5, dtype=torch.float64, requires_grad=True)
    y, mean, invstd, *_ = reference.batch_norm(x, None, None, None, None, 0.1, 1e-5)
    grad = torch.randn_like(y)
    (want,) = torch.autograd.grad(y, x, grad)
    shards = [(0, 2), (2, 3), (3, 8)]
    local = [sums(grad[a:b], x.detach()[a:b], mean.detach()) for a, b in shards]
    sum_dy, sum_dy_xmu = (torch.stack(parts).sum(0) for parts in zip(*local, strict=True))
    counter = torch.tensor([(b - a) * 5 for a, b in shards], dtype=torch.int32)
    for a, b in shards:
        got = aclgrad.batch_norm_elemt_backward(
            grad[a:b], x.detach()[a:b], mean.detach(), invstd.detach(), None, sum_dy, sum_dy_xmu, counter
        )
        torch.testing.assert_close(got, want[a:b])


@pytest.mark.parametrize(("grad_dtype", "x_dtype", "out_dtype"), mixes(FLOATS))
def test_every_mix_of_dtypes(grad_dtype, x_dtype, out_dtype):
    torch.manual_seed(2)
    c = 5
    grad, x = torch.randn(3, c, 11).to(grad_dtype), torch.randn(3, c, 11).to(x_dtype)
    vectors = [torch.rand(c).to(FLOATS[k % 3]) + 0.5 for k in range(5)]
    counter = torch.tensor([7, 9], dtype=torch.int32)
    args = (grad, x, *vectors, counter)
    out = torch.full_like(x, torch.nan, dtype=out_dtype)
    aclgrad.batch_norm_elemt_backward(*args, out=out, backend="cpu")
    truth = reference.batch_norm_elemt_backward(*[t.double() for t in args])
    naive = reference.batch_norm_elemt_backward(*[t.float() for t in args]).to(out_dtype)
    assert_within_baseline(out, truth, naive)


@pytest.mark.parametrize(
    "counter",
    [30, 30.0, torch.tensor(30), torch.tensor([10, 20]), torch.full((2, 3, 5), 1.0).half(),
     torch.tensor([[30.0]]).bfloat16(),
     torch.ones(60, dtype=torch.int8)[::2], torch.tensor([15, 15], dtype=torch.uint8), torch.tensor([30.0]).double()],
    ids=str,
)  # fmt: skip
def test_counters_are_summed_whatever_they_are(counter):
    torch.manual_seed(3)
    tensors = [torch.randn(3, 4, 5), torch.randn(3, 4, 5), *(torch.rand(4) for _ in range(5))]
    want = aclgrad.batch_norm_elemt_backward(*tensors, torch.tensor([30], dtype=torch.int32))
    assert torch.equal(aclgrad.batch_norm_elemt_backward(*tensors, counter), want)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_no_samples_follow_ieee(backend):
    tensors = [
        torch.randn(2, 3, 2),
        torch.randn(2, 3, 2),
        torch.zeros(3),
        torch.ones(3),
        None,
        torch.tensor([1.0, 0.0, -1.0]),
    ]
    got = aclgrad.batch_norm_elemt_backward(*tensors, torch.zeros(3) + 1, torch.zeros(0), backend=backend)
    assert not bool(got.isfinite().any())


def test_strided_vectors_and_expanded_inputs():
    torch.manual_seed(4)
    x = torch.randn(1, 4, 1).expand(3, 4, 5)
    grad = torch.randn(3, 5, 4).transpose(1, 2)
    vectors = [torch.rand(4, 3)[:, 1] + 0.5 for _ in range(5)]
    want = aclgrad.batch_norm_elemt_backward(grad.contiguous(), x.contiguous(), *[v.contiguous() for v in vectors], 15)
    torch.testing.assert_close(aclgrad.batch_norm_elemt_backward(grad, x, *vectors, 15), want, rtol=1e-6, atol=1e-6)


def test_result_keeps_the_inputs_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    vectors = [torch.rand(3) for _ in range(4)]
    got = aclgrad.batch_norm_elemt_backward(x, x, *vectors[:2], None, *vectors[2:], 40)
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_agrees_with_pytorchs_own_sync_formula():
    """torch.batch_norm_backward_elemt runs on GPUs only; its documented formula is the same bracket."""
    torch.manual_seed(5)
    grad, x = torch.randn(4, 3, 6), torch.randn(4, 3, 6)
    mean, invstd, weight, sum_dy, sum_dy_xmu = (torch.rand(3) for _ in range(5))
    n = torch.tensor([24], dtype=torch.int32)
    view = lambda v: v.view(1, 3, 1)  # noqa: E731
    want = (grad - view(sum_dy / 24) - (x - view(mean)) * view(invstd**2 * sum_dy_xmu / 24)) * view(invstd * weight)
    torch.testing.assert_close(
        aclgrad.batch_norm_elemt_backward(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, n), want
    )
