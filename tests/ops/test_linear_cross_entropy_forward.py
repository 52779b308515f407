"""The forward pass of linear cross entropy: shards together give the loss of the whole vocabulary, and its gradient."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import aclgrad
from aclgrad.ops.linear_cross_entropy import reference, spec_forward
from aclgrad.ops.linear_cross_entropy.reference import pack_bits, unpack_bits
from aclgrad.testing import poisoned_memory, verdicts

GPU = torch.cuda.is_available()
BACKENDS = ("cpu", "reference", pytest.param("triton", marks=pytest.mark.gpu))
OPERATOR = spec_forward.linear_online_max_sum


@pytest.fixture(params=BACKENDS)
def backend(request):
    with torch.device("cuda" if request.param == "triton" and GPU else "cpu"):
        yield request.param


def chain(x, w, target, cuts, backend, *, softmax):
    """Losses of all tokens and, for a gradient of ones, both gradients: what the ranks of a group compute together."""
    ranks = list(itertools.pairwise(cuts))
    locals_ = [
        aclgrad.linear_online_max_sum(x, w[low:high], target, low, high, return_logits=softmax, backend=backend)
        for low, high in ranks
    ]
    top = torch.stack([local[0] for local in locals_]).amax(0)
    total, predicted = torch.zeros_like(top), torch.zeros_like(top)
    for local_top, local_sum, local_logit, mask, *_ in locals_:
        change = local_top - top
        total += local_sum * change.exp()
        predicted += torch.where(unpack_bits(mask)[: len(top)], 0.0, local_logit + change)
    input_grad, weight_grads, losses = torch.zeros_like(x), [], []
    for (low, high), (_, _, _, mask, row, logits) in zip(ranks, locals_, strict=True):
        loss, p = aclgrad.cross_entropy_with_max_sum(
            top, total, predicted, 0.0, x, w[low:high], logits, backend=backend
        )  # fmt: skip
        assert (p is None) == (not softmax)
        source = (None, None, p) if softmax else (top, total, None)
        grad = torch.where(target == -100, 0.0, torch.ones_like(loss))
        dx, dw = aclgrad.linear_cross_entropy_backward(
            grad, x, w[low:high], mask, row, 0.0, *source, check=True, backend=backend
        )  # fmt: skip
        input_grad += dx
        weight_grads.append(dw)
        losses.append(loss)
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    return losses[0], input_grad, torch.cat(weight_grads)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("cuts", [(0, 300), (0, 130, 131, 300)], ids=["whole", "shards"])
def test_shards_together_give_cross_entropy_and_its_gradient(cuts, softmax, backend):
    dtype = torch.float32 if backend == "triton" else torch.float64
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(21, 10, generator=generator, device="cpu", dtype=torch.float64)
    w = torch.randn(300, 10, generator=generator, device="cpu", dtype=torch.float64)
    target = torch.randint(0, 300, (21,), generator=generator, device="cpu")
    target[4] = -100
    x, w, target = (t.to(torch.get_default_device()) for t in (x.to(dtype), w.to(dtype), target))
    loss, input_grad, weight_grad = chain(x, w, target, cuts, backend, softmax=softmax)
    x.requires_grad_(), w.requires_grad_()
    want = F.cross_entropy(x @ w.t(), target, reduction="none", ignore_index=-100)
    torch.testing.assert_close(torch.where(target == -100, 0.0, loss), want.detach())
    want_x, want_w = torch.autograd.grad(want.sum(), (x, w))
    torch.testing.assert_close(input_grad, want_x)
    torch.testing.assert_close(weight_grad, want_w)


@pytest.mark.interpreted(tokens=[1, 8, 11])
@pytest.mark.interpreted(index=[torch.int64])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("tokens", [1, 8, 11, 300])
def test_mask_and_rows_say_where_the_target_is(tokens, index, backend):
    x, w = torch.zeros(tokens, 4), torch.zeros(7, 4)
    low, high = 100, 107
    wild = torch.tensor([99, 100, 106, 107, -100, 0, torch.iinfo(index).max, torch.iinfo(index).min], dtype=index)
    target = wild.repeat(38)[:tokens]
    *_, mask, row, logits = aclgrad.linear_online_max_sum(x, w, target, low, high, backend=backend)
    elsewhere = (target < low) | (target >= high)
    assert logits is None
    assert mask.dtype == torch.uint8 and torch.equal(mask, pack_bits(elsewhere))
    spare = unpack_bits(mask)[tokens:]
    assert bool(spare.all())
    assert row.dtype == index and torch.equal(row, torch.where(elsewhere, 0, target - low).to(index))


def test_a_target_in_range_that_the_shard_lacks_is_never_read(backend):
    """The range may be wider than the weight; the document does not compare them."""
    x, w = torch.ones(3, 2), torch.ones(5, 2)
    target = torch.tensor([4, 5, 900])
    top, total, predicted, mask, row, _ = aclgrad.linear_online_max_sum(x, w, target, 0, 1000, backend=backend)
    assert torch.equal(top, torch.full((3,), 2.0)) and torch.equal(total, torch.full((3,), 5.0))
    assert torch.equal(predicted, torch.zeros(3))
    assert torch.equal(unpack_bits(mask)[:3], torch.zeros(3, dtype=torch.bool)) and torch.equal(row, target)


def shard(tokens, hidden, rows, dtype):
    generator = torch.Generator("cpu").manual_seed(1)
    x = torch.randn(tokens, hidden, generator=generator, device="cpu").to(dtype)
    w = (torch.randn(rows, hidden, generator=generator, device="cpu") * hidden**-0.5).to(dtype)
    target = torch.randint(-rows, 2 * rows, (tokens,), generator=generator, device="cpu")
    return tuple(t.to(torch.get_default_device()) for t in (x, w, target))


@pytest.mark.interpreted(dtype=[torch.bfloat16])
@pytest.mark.interpreted(turned=[True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_logits_are_the_rounded_product_wherever_they_are_wanted(dtype, turned, backend):
    x, w, target = shard(37, 24, 250, dtype)
    out = torch.full((250, 74) if turned else (74, 250), torch.nan, dtype=dtype)
    logits = out.t()[:37] if turned else out[::2]
    with poisoned_memory():
        results = aclgrad.linear_online_max_sum(x, w, target, 0, 250, out=(*[None] * 5, logits), backend=backend)
        again = aclgrad.linear_online_max_sum(x, w, target, 0, 250, backend=backend)
    assert results[5] is logits
    for written in (results, again):
        for name, verdict in verdicts(OPERATOR.spec, (x, w, target, 0, 250), written, dtype):
            assert verdict.ok, f"{name}: {verdict}"
    assert int(out.isnan().sum()) == 37 * 250
    if not x.is_cuda:  # on a GPU, another product may add the terms in another order if nobody wants the logits
        assert all(torch.equal(a, b) for a, b in zip(results[:5], again[:5], strict=True))
    wide = logits.double()
    torch.testing.assert_close(results[0].double(), wide.amax(1), rtol=0, atol=0)
    torch.testing.assert_close(results[1].double(), (wide - wide.amax(1, keepdim=True)).exp().sum(1), rtol=1e-6, atol=0)


INF, NAN = torch.inf, torch.nan
ODD = {
    "a_plus": {5: INF},
    "a_nan_in_the_last_tile": {299: NAN},
    "both": {5: INF, 299: NAN},
    "all_minus": dict.fromkeys(range(300), -INF),
    "all_minus_at_first": dict.fromkeys(range(280), -INF),
    "a_minus": {7: -INF},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_infinite_and_undefined_logits_follow_the_formula(odd, backend):
    logits = torch.linspace(-3, 3, 300)
    for column, value in odd.items():
        logits[column] = value
    call = (torch.ones(1, 1), logits[:, None], torch.tensor([8]), 0, 300)
    got = aclgrad.linear_online_max_sum(*call, backend=backend)
    want = reference.linear_online_max_sum(*call)
    for result, expected in zip(got[:3], want[:3], strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("tokens", [3, 200])
def test_half_precision_overflow_is_seen_by_the_statistics(tokens, backend):
    """A logit of 80000 is Inf in float16; the sum is then undefined, as the formula has it."""
    x = torch.full((tokens, 2), 200.0, dtype=torch.float16)
    w = torch.tensor([[200.0, 200.0], [1.0, 1.0]], dtype=torch.float16)
    target = torch.zeros(tokens, dtype=torch.int64)
    top, total, *_ = aclgrad.linear_online_max_sum(x, w, target, 0, 2, backend=backend)
    assert bool((top == torch.inf).all()) and bool(total.isnan().all())


def test_memory_is_bounded():
    """At a language model's size the workspace is a small fraction of the logits."""
    tokens, hidden, rows = 1024, 1024, 32000
    x, w = (torch.empty(n, hidden, dtype=torch.bfloat16) for n in (tokens, rows))  # untouched pages cost nothing
    plan = OPERATOR.plan((x, w, torch.empty(tokens, dtype=torch.int64), 0, rows), backend="cpu")
    assert plan.workspace_size <= 4 * tokens * rows / 16
