"""Loss and gradients of a language model's head: as close to float64 as eager torch, in bounded memory."""

import re

import pytest
import torch
import torch.nn.functional as F

from aclgrad.core.errors import InvalidArgument
from aclgrad.ops.linear_cross_entropy import training
from aclgrad.ops.linear_cross_entropy.cpu import choose as cpu_choose
from aclgrad.ops.linear_cross_entropy.cpu.choose import kept_as
from aclgrad.ops.linear_cross_entropy.triton import choose, choose_rows
from aclgrad.testing import judge, poisoned_memory
from aclgrad.testing.tolerance import naive_dtype

GPU = torch.cuda.is_available()
BACKENDS = ("cpu", "reference", pytest.param("triton", marks=pytest.mark.gpu))
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
OPERATOR = training.together
SMALL = (19, 24, 131)
"""Tokens, features and rows that every dtype is interpreted with; where it says so, the rest is interpreted in one."""

in_one_dtype = pytest.mark.interpreted(dtype=DTYPES[:1])


@pytest.fixture(params=BACKENDS)
def backend(request):
    with torch.device("cuda" if request.param == "triton" and GPU else "cpu"):
        yield request.param


@pytest.fixture
def room_for_logits(monkeypatch):
    """A function that says how many bytes of the workspace logits may be kept in."""

    def say(size):
        monkeypatch.setattr(cpu_choose, "KEPT_LOGITS", size)
        OPERATOR._plans.clear()

    yield say
    OPERATOR._plans.clear()


def head(tokens, hidden, rows, dtype, index=torch.int64):
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(tokens, hidden, generator=generator, device="cpu").to(dtype)
    w = (torch.randn(rows, hidden, generator=generator, device="cpu") * hidden**-0.5).to(dtype)
    target = torch.randint(0, rows, (tokens,), generator=generator, device="cpu").to(index)
    target[1::7] = -100
    return tuple(t.to(torch.get_default_device()) for t in (x, w, target))


def eager(x, w, target, dtype, **options):
    """(loss, input_grad, weight_grad) by torch in a dtype; a loss of each token is summed for the gradients."""
    x, w = (t.to(dtype).clone().requires_grad_() for t in (x, w))
    loss = F.cross_entropy(F.linear(x, w), target.long(), **options)
    return (loss.detach(), *torch.autograd.grad(loss.sum(), (x, w)))


def check(results, x, w, target, **options):
    """Every result that is there against float64, in the light of eager torch in the same dtype."""
    truth, naive = (eager(x, w, target, dtype, **options) for dtype in (torch.float64, naive_dtype(x.dtype)))
    for label, result, true, base in zip(("loss", "input_grad", "weight_grad"), results, truth, naive, strict=True):
        if result is not None:
            verdict = judge(result, true, base, x.dtype)
            assert verdict.ok, f"{label}: {verdict}"


def skip_double(backend, dtype):
    if backend == "triton" and dtype == torch.float64:
        pytest.skip("the Triton kernels refuse float64")


@pytest.mark.interpreted(dims=[SMALL])
@pytest.mark.interpreted(dtype=DTYPES[:1], reduction=["mean"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "dims", [SMALL, (1, 33, 128), (40, 1, 257), (100, 64, 500), (30, 65, 1030), (9, 8, 1)], ids=str
)
def test_loss_and_gradients_are_as_good_as_eager_torchs(dims, reduction, dtype, backend):
    skip_double(backend, dtype)
    x, w, target = head(*dims, dtype)
    with poisoned_memory():
        results = training.loss_and_gradients(x, w, target, reduction=reduction, backend=backend)
    assert results[0].shape == () and results[0].dtype == torch.promote_types(dtype, torch.float32)
    check(results, x, w, target, reduction=reduction)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "room", "where"),
    [
        (240, 0, "logits kept in the memory of weight_grad"),
        (500, 0, r"logits of 2\d\d tokens kept in the memory of weight_grad"),
        (500, 400, r"logits of 3\d\d tokens kept in the workspace"),
        (500, 500, "logits kept in the workspace"),
    ],
    ids=["all kept", "some kept", "some beside", "all beside"],
)
def test_blocks_of_several_parts(tokens, room, where, dtype, room_for_logits):
    x, w, target = head(tokens, 260, 700, dtype)
    room_for_logits(room * 700 * kept_as(dtype).itemsize)
    found = OPERATOR.plan((x, w, target, -100, True, True, True)).describe()
    assert re.search(where, found), found
    with poisoned_memory():
        check(training.loss_and_gradients(x, w, target, backend="cpu"), x, w, target)


def test_logits_are_kept_also_where_weight_grad_is_not_wanted(room_for_logits):
    x, w, target = head(300, 33, 700, torch.float32)
    results = []
    for room in (0, 200, 300):
        room_for_logits(room * 700 * x.itemsize)
        with poisoned_memory():
            results.append(training.loss_and_gradients(x, w, target, wants_weight_grad=False, backend="cpu"))
        check(results[-1], x, w, target)


@in_one_dtype
@pytest.mark.interpreted(reduction=["none"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_one_after_the_other(reduction, dtype, backend):
    skip_double(backend, dtype)
    x, w, target = head(19, 24, 131, dtype, index=torch.int32)
    losses, *statistics = training.token_losses(x, w, target, backend=backend)
    grad = torch.ones_like(losses)
    if reduction == "mean":
        grad /= (target != -100).sum()
    gradients = training.token_gradients(grad, x, w, target, statistics, backend=backend)
    check((training.reduced(losses, target, -100, reduction), *gradients), x, w, target, reduction=reduction)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_what_is_not_wanted_is_not_computed(wanted, backend):
    x, w, target = head(19, 24, 131, torch.float32)
    flags = dict(zip(("wants_input_grad", "wants_weight_grad"), wanted, strict=True))
    expected = training.loss_and_gradients(x, w, target, backend=backend)
    results = training.loss_and_gradients(x, w, target, **flags, backend=backend)
    assert [result is not None for result in results[1:]] == list(wanted)
    check(results, x, w, target)
    torch.testing.assert_close(results[0], expected[0])
    _, *statistics = training.token_losses(x, w, target, backend=backend)
    grad = torch.ones(19) / (target != -100).sum()
    later = training.token_gradients(grad, x, w, target, statistics, **flags, backend=backend)
    assert [result is not None for result in later] == list(wanted)
    check((None, *later), x, w, target)


def test_an_index_of_the_vocabulary_may_be_ignored(backend):
    x, w, target = head(40, 8, 30, torch.float32)
    target[target < 0] = 3
    check(training.loss_and_gradients(x, w, target, ignore_index=3, backend=backend), x, w, target, ignore_index=3)


def test_nothing_counts(backend):
    x, w, target = head(5, 8, 30, torch.float32)
    target.fill_(-100)
    loss, dx, dw = training.loss_and_gradients(x, w, target, backend=backend)
    assert bool(loss.isnan()) and not bool(dx.any()) and not bool(dw.any())
    loss, dx, dw = training.loss_and_gradients(x[:0], w, target[:0], reduction="sum", backend=backend)
    assert float(loss) == 0 and dx.shape == (0, 8) and not bool(dw.any())
    assert bool(training.loss_and_gradients(x[:0], w, target[:0], backend=backend)[0].isnan())
    loss, dx, dw = training.loss_and_gradients(x[:, :0], w[:, :0], target * 0, backend=backend)
    torch.testing.assert_close(loss, torch.tensor(30.0).log())
    assert dx.shape == (5, 0) and dw.shape == (30, 0)


def test_matrices_of_any_layout(backend):
    x, w, target = head(19, 24, 131, torch.float32)
    expected = training.loss_and_gradients(x, w, target, backend=backend)
    turned = training.loss_and_gradients(x.t().contiguous().t(), w.repeat(1, 2)[:, :24], target, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(turned, expected, strict=True))


def test_reductions_are_named():
    x, w, target = head(5, 8, 30, torch.float32)
    with pytest.raises(InvalidArgument, match="reduction is 'none', expected one of mean, sum"):
        training.loss_and_gradients(x, w, target, reduction="none")
    with pytest.raises(InvalidArgument, match="weight has shape"):
        training.loss_and_gradients(x, w[:, 1:], target)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_memory_is_bounded(dtype):
    """The matrix of logits in float32 would be eight times as large."""
    tokens, hidden, rows = 1024, 1024, 32000
    x, w = (torch.empty(n, hidden, dtype=dtype) for n in (tokens, rows))  # untouched pages cost nothing
    target = torch.empty(tokens, dtype=torch.int64)
    plan = OPERATOR.plan((x, w, target, -100, True, True, True), backend="cpu")
    assert plan.workspace_size <= 4 * tokens * rows / 8


def test_same_bits_for_any_number_of_threads():
    args = head(100, 64, 700, torch.bfloat16)
    expected = training.loss_and_gradients(*args, backend="cpu")
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results = training.loss_and_gradients(*args, backend="cpu")
            assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def short_of_memory(monkeypatch):
    monkeypatch.setattr(choose, "BUDGET", 150_000)
    monkeypatch.setattr(choose, "WEIGHT_GRAD_SUMS", 0)
    OPERATOR._plans.clear()
    yield monkeypatch
    OPERATOR._plans.clear()


def run_triton(x, w, target):
    """(results, phases) of the GPU kernel, judged."""
    plan = OPERATOR.plan((x, w, target, -100, True, True, True), backend="triton")
    with poisoned_memory():
        results = training.loss_and_gradients(x, w, target, backend="triton")
    check(results, x, w, target)
    return [type(phase).__name__ for phase in plan.launch._launch._phases]


@pytest.mark.gpu
@pytest.mark.interpreted(dtype=DTYPES[:1], sums=[0])
@pytest.mark.parametrize("sums", [0, 1 << 20], ids=["added in its own dtype", "added in float32"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_chunks_of_tokens_add_up(dtype, sums, short_of_memory):
    short_of_memory.setattr(choose, "BUDGET", 40_000 + (sums and 20_000))
    short_of_memory.setattr(choose, "WEIGHT_GRAD_SUMS", sums)
    with torch.device("cuda" if GPU else "cpu"):
        assert run_triton(*head(80, 16, 200, dtype)) == ["InWorkspace"]


@pytest.mark.gpu
@pytest.mark.interpreted(dtype=DTYPES[:1], tokens=[170])  # which borrows as well
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize(
    ("tokens", "budget", "phases"), [(132, 100_000, ["InWeightGrad"]), (170, 60_000, ["InWeightGrad", "InWorkspace"])]
)
def test_logits_wait_where_weight_grad_will_be(tokens, budget, phases, dtype, short_of_memory):
    short_of_memory.setattr(choose, "BUDGET", budget)
    with torch.device("cuda" if GPU else "cpu"):
        assert run_triton(*head(tokens, 144, 272, dtype)) == phases


@pytest.mark.gpu
@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_sums_in_float32_begin_with_what_was_borrowed_for(dtype, short_of_memory):
    """The more multiprocessors, the more products count as small, and small ones are summed in float32."""
    short_of_memory.setattr(choose, "BUDGET", 60_000)
    short_of_memory.setattr(choose_rows, "multiprocessors", lambda device: 132)
    with torch.device("cuda" if GPU else "cpu"):
        assert run_triton(*head(170, 144, 272, dtype)) == ["InWeightGrad", "InWorkspace"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "dims",
    [(8192, 4096, 128256), (8192, 4096, 16032), (4096, 2048, 32000), (100, 333, 900001), (4000, 8192, 256000)],
    ids=str,
)
def test_phases_fit_the_budget(dims):
    tokens, hidden, rows = dims
    x, w = (torch.empty(n, hidden, dtype=torch.bfloat16, device="meta") for n in (tokens, rows))
    target = torch.empty(tokens, dtype=torch.int64, device="meta")
    call, _ = OPERATOR.judge(OPERATOR.spec.completed((x, w, target, -100, True, True, True)))
    budget = choose.BUDGET - 24 * tokens
    chunk, borrowed = choose.chunk_rows(call, budget), choose.tokens_in_weight_grad(call, budget)
    of_statistics = 8 * -(-rows // 256) + 4
    assert 0 < chunk * (2 * rows + of_statistics) <= budget
    if borrowed:
        columns = choose.block_columns(call, borrowed, budget)
        assert borrowed <= hidden and columns % 256 == 0
        assert borrowed * (2 * columns + 4 * hidden + of_statistics) <= budget
