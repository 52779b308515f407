"""Linear cross entropy on a GPU, forward and in training, at sizes that have tiles and chunks to spare."""

import pytest
import torch
import torch.nn.functional as F

from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.linear_cross_entropy import spec_forward, training
from aclgrad.ops.linear_cross_entropy.triton import choose
from aclgrad.testing import judge, poisoned_memory, verdicts

DTYPES = (BF16, F16, F32)
STATISTICS, LOSSES = spec_forward.linear_online_max_sum, spec_forward.cross_entropy_with_max_sum
TOGETHER = training.together
SIZES = {
    "even": (1024, 512, 8192),
    "one_past_a_tile": (129, 65, 257),
    "odd": (777, 333, 9001),
    "few_tokens": (3, 1024, 50000),
    "many_tokens": (20000, 64, 300),
}


def head(tokens, hidden, rows, dtype):
    x = torch.randn(tokens, hidden).to(dtype)
    w = (torch.randn(rows, hidden) * hidden**-0.5).to(dtype)
    target = torch.randint(0, rows, (tokens,))
    target[tokens // 2] = -100
    return x, w, target


def shifted(tensor):
    """The same values in memory that begins one element late, so that no bulk copy takes them."""
    rows, columns = tensor.shape
    return torch.empty(rows, columns + 8, dtype=tensor.dtype)[:, 1 : columns + 1].copy_(tensor)


def judged(args, results, dtype):
    for name, verdict in verdicts(STATISTICS.spec, args, results, dtype):
        assert verdict.ok, f"{name}: {verdict}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_statistics_of_every_size(name, dtype, cuda):
    x, w, target = head(*SIZES[name], dtype)
    rows = len(w)
    for start, end in ((0, rows), (rows // 3, rows // 3 + rows)):
        args = (x, w, target, start, end)
        logits = torch.full((len(x), rows), torch.nan, dtype=dtype)
        with poisoned_memory():
            alone, again = STATISTICS(*args), STATISTICS(*args)
            together = STATISTICS(*args, out=(*[None] * 5, logits))
            odd = STATISTICS(shifted(x), shifted(w), *args[2:])
        assert all(torch.equal(a, b) for a, b in zip(alone[:5], again[:5], strict=True))
        for results in (alone, together, odd):
            judged(args, results, dtype)


INF, NAN = torch.inf, torch.nan
ODD = {
    "a_plus": {700: INF},
    "a_nan": {5: NAN},
    "both": {3: INF, 999: NAN},
    "all_minus": dict.fromkeys(range(1000), -INF),
    "a_tile_of_minus": dict.fromkeys(range(256), -INF),
    "the_last_columns": dict.fromkeys(range(768, 1000), -INF),
}


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_statistics_of_infinite_and_undefined_logits(odd, dtype, cuda):
    """The rows of the weight are logits; features beside the first are zero, in the tokens as in the weight."""
    x, w = torch.zeros(130, 64, dtype=dtype), torch.zeros(1000, 64, dtype=dtype)
    x[:, 0], w[:, 0] = 1, torch.linspace(-3, 3, 1000)
    for column, value in odd.items():
        w[column, 0] = value
    args = (x, w, torch.arange(130), 0, 1000)
    judged(args, STATISTICS(*args), dtype)
    judged(args, STATISTICS(*args, out=(*[None] * 5, torch.empty(130, 1000, dtype=dtype))), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_losses_and_softmax(dtype, cuda):
    x, w, target = head(777, 64, 9001, dtype)
    logits = torch.empty(777, 9001, dtype=dtype)
    top, total, predicted, *_ = STATISTICS(x, w, target, 0, 9001, out=(*[None] * 5, logits))
    loss, softmax = LOSSES(top, total, predicted, 0.0, None, None, logits)
    exact = logits.double()
    torch.testing.assert_close(softmax.double(), exact.softmax(1), rtol=1e-5, atol=1e-9)
    valid = target != -100
    want = F.cross_entropy(exact[valid], target[valid], reduction="none")
    torch.testing.assert_close(loss[valid].double(), want, rtol=1e-5, atol=1e-5)


def eager(x, w, target, dtype, reduction):
    x, w = (t.to(dtype).clone().requires_grad_() for t in (x, w))
    loss = F.cross_entropy(F.linear(x, w), target, reduction=reduction)
    return (loss.detach(), *torch.autograd.grad(loss, (x, w)))


def trained(x, w, target, reduction="mean", **flags):
    """Results of one pass, judged against float64 in the light of eager torch, and the phases it went through."""
    with poisoned_memory():
        results = training.loss_and_gradients(x, w, target, reduction=reduction, **flags)
    truth, naive = (eager(x, w, target, dtype, reduction) for dtype in (torch.float64, x.dtype))
    for label, result, true, base in zip(("loss", "input_grad", "weight_grad"), results, truth, naive, strict=True):
        if result is not None:
            verdict = judge(result, true, base, x.dtype)
            assert verdict.ok, f"{label}: {verdict}"
    wanted = [flags.get(name, True) for name in ("wants_input_grad", "wants_weight_grad")]
    plan = TOGETHER.plan((x, w, target, -100, reduction == "mean", *wanted))
    assert plan.workspace_size <= choose.BUDGET
    return results, [type(phase).__name__ for phase in plan.launch._launch._phases]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_training_at_every_size(name, dtype, cuda):
    x, w, target = head(*SIZES[name], dtype)
    for reduction in ("mean", "sum"):
        trained(x, w, target, reduction)


@pytest.mark.parametrize(
    ("dims", "phases"),
    [
        ((1536, 1536, 90112), ["InWeightGrad"]),
        ((4096, 512, 90112), ["InWorkspace"]),
        ((3000, 1536, 90112), ["InWeightGrad", "InWorkspace"]),
        ((2000, 64, 200000), ["InWorkspace"]),
    ],
    ids=str,
)
def test_training_where_logits_do_not_fit(dims, phases, cuda):
    x, w, target = head(*dims, BF16)
    results, went = trained(x, w, target)
    assert went == phases
    again = training.loss_and_gradients(x, w, target)
    assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))
    trained(x, w, target, wants_weight_grad=False)
    trained(x, w, target, wants_input_grad=False)


def test_training_with_matrices_at_odd_addresses(cuda, monkeypatch):
    monkeypatch.setattr(choose, "INPUT_GRAD_SUMS", 0)
    x, w, target = head(1000, 512, 8192, BF16)
    for matrices in ((shifted(x), w), (x, shifted(w))):
        args = (*matrices, target, -100, True, True, True)
        results, expected = TOGETHER(*args)[:3], training.loss_and_gradients(x, w, target)
        for result, want in zip(results, expected, strict=True):
            torch.testing.assert_close(result, want, rtol=2e-2, atol=1e-6)


def test_a_training_step_can_be_captured(cuda):
    args = TOGETHER.spec.completed((*head(1536, 1536, 90112, BF16), -100, True, True, True))
    plan = TOGETHER.plan(args)
    outs, workspace = plan.allocate(), plan.workspace()
    written = [out for out in outs if out is not None]
    plan.launch(args, outs, workspace)
    expected = [out.clone() for out in written]
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    plan.launch(args, outs, workspace)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.launch(args, outs, workspace)
    for out in written:
        out.fill_(torch.nan)
    graph.replay()
    assert len(written) == 3 and all(torch.equal(a, b) for a, b in zip(written, expected, strict=True))
