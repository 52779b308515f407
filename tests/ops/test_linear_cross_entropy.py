"""What is peculiar to linear cross entropy: shards prove the gradient by autograd, masks, memory, rounding."""

import itertools

import pytest
import torch

import aclgrad
from aclgrad.ops.linear_cross_entropy import reference, spec
from aclgrad.ops.linear_cross_entropy.cases import pack_bits

BACKENDS = ("cpu", "reference")


def shards(x, w, target, cuts, softmax, backend, grad, packed=True):
    """Gradients of a vocabulary cut into shards: inputs' summed, weights' concatenated."""
    logits = x @ w.t()
    top, total = logits.amax(1), None
    total = (logits - top[:, None]).exp().sum(1)
    input_grad, weight_grads = torch.zeros_like(x), []
    for low, high in itertools.pairwise(cuts):
        elsewhere = (target < low) | (target >= high)
        local = torch.where(elsewhere, torch.full_like(target, 10**6), target - low)
        mask = pack_bits(elsewhere) if packed else elsewhere
        given = (
            (None, None, (logits[:, low:high] - top[:, None]).exp() / total[:, None]) if softmax else (top, total, None)
        )
        dx, dw = aclgrad.linear_cross_entropy_backward(grad, x, w[low:high], mask, local, 0.0, *given, backend=backend)
        input_grad += dx
        weight_grads.append(dw)
    return input_grad, torch.cat(weight_grads)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_shards_together_give_the_gradient_of_cross_entropy(backend, softmax, packed):
    torch.manual_seed(0)
    x = torch.randn(21, 10, dtype=torch.float64, requires_grad=True)
    w = torch.randn(300, 10, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 300, (21,))
    grad = torch.randn(21, dtype=torch.float64)
    loss = reference.linear_cross_entropy(x, w, target)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(x @ w.t(), target, reduction="none"))
    want_x, want_w = torch.autograd.grad(loss, (x, w), grad)
    got_x, got_w = shards(x.detach(), w.detach(), target, (0, 130, 131, 300), softmax, backend, grad, packed)
    torch.testing.assert_close(got_x, want_x)
    torch.testing.assert_close(got_w, want_w)


def head(tokens=24, hidden=16, rows=160, dtype=torch.bfloat16, seed=0):
    torch.manual_seed(seed)
    x, w = torch.randn(tokens, hidden).to(dtype), torch.randn(rows, hidden).to(dtype) / 4
    logits = x.float() @ w.float().t()
    top = logits.amax(1)
    return x, w, top, (logits - top[:, None]).exp().sum(1), torch.randn(tokens)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_targets_out_of_range_subtract_nothing(backend, index):
    x, w, top, total, grad = head()
    limits = torch.iinfo(index)
    wild = torch.tensor([-1, 160, limits.min, limits.max, 10**6, -(10**6)], dtype=index)
    target = torch.cat([wild, torch.zeros(18, dtype=index)])
    here = torch.zeros(24, dtype=torch.bool)
    elsewhere = here.clone()
    elsewhere[:6] = True
    got = aclgrad.linear_cross_entropy_backward(grad, x, w, here, target, 0.0, top, total, backend=backend)
    want = aclgrad.linear_cross_entropy_backward(grad, x, w, elsewhere, target, 0.0, top, total, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_check_reads_the_targets():
    x, w, top, total, grad = head()
    target = torch.zeros(24, dtype=torch.int64)
    target[5], target[7] = 160, -1
    mask = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(aclgrad.InvalidArgument, match=r"masked_target\[5\] is 160, expected 0 to 159"):
        aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, 0.0, top, total, check=True)
    mask[0] = 0b10100000
    aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, 0.0, top, total, check=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_count_from_the_least_significant(backend):
    x, w, top, total, grad = head(tokens=11)
    target = torch.arange(11)
    elsewhere = torch.tensor([1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1], dtype=torch.bool)
    packed = torch.tensor([0b00011001, 0b00000101], dtype=torch.uint8)
    long = torch.tensor([0b00011001, 0b11111101, 255, 255], dtype=torch.uint8)
    results = [
        aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, 0.0, top, total, backend=backend)
        for mask in (elsewhere, packed, long, torch.stack([packed, packed], 1)[:, 0])
    ]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_given_the_softmax_the_statistics_are_not_read(backend):
    x, w, top, total, grad = head()
    softmax = torch.softmax(x.float() @ w.float().t(), 1)
    target, mask = torch.zeros(24, dtype=torch.int64), torch.zeros(24, dtype=torch.bool)
    before = softmax.clone()
    want = aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, softmax=softmax, backend=backend)
    junk = torch.full((3, 5), torch.nan, dtype=torch.float16)
    got = aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, 0.0, junk, junk, softmax, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(softmax, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_probabilities_pass_through_the_half_type_once(dtype):
    """One token: weight_grad is its rounded probability row times the input, exactly."""
    x, w, top, total, grad = head(tokens=1, hidden=1, dtype=dtype)
    x.fill_(1.0)
    softmax = torch.rand(1, 160) / 160
    mask, target = torch.zeros(1, dtype=torch.bool), torch.tensor([3])
    _, dw = aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, softmax=softmax, backend="cpu")
    p = softmax.clone()
    p[0, 3] -= 1
    assert torch.equal(dw[:, 0], (p * grad[:, None]).to(dtype)[0])


def test_memory_is_bounded():
    """At a language model's size the workspace is a small fraction of the logits."""
    tokens, hidden, rows = 1024, 1024, 32000
    meta = lambda *shape, dtype: torch.empty(shape, dtype=dtype)  # noqa: E731  untouched pages cost nothing
    args = (
        meta(tokens, dtype=torch.float32), meta(tokens, hidden, dtype=torch.bfloat16),
        meta(rows, hidden, dtype=torch.bfloat16),
        meta(tokens, dtype=torch.bool), meta(tokens, dtype=torch.int64), 0.0, meta(tokens, dtype=torch.float32),
        meta(tokens, dtype=torch.float32), None,
    )  # fmt: skip
    plan = spec.linear_cross_entropy_backward.plan(args, backend="cpu")
    assert plan.workspace_size <= 4 * tokens * rows / 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_infinite_token_spoils_only_what_it_touches(backend):
    x, w, top, total, grad = head()
    x[3, 2] = torch.inf
    mask, target = torch.zeros(24, dtype=torch.bool), torch.arange(24)
    dx, dw = aclgrad.linear_cross_entropy_backward(grad, x, w, mask, target, 0.0, top, total, backend=backend)
    assert not bool(dx[3].isfinite().any())
    assert bool(dx[:3].isfinite().all()) and bool(dx[4:].isfinite().all())
