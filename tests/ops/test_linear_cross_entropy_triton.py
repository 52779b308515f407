"""The GPU kernel of linear cross entropy where it cuts: chunks along either side, strips of logits, odd sizes."""

import itertools

import pytest
import torch

from aclgrad.core.backends import widen
from aclgrad.ops.linear_cross_entropy import reference, spec
from aclgrad.ops.linear_cross_entropy.triton import choose, choose_rows
from aclgrad.testing import assert_within_baseline, poisoned_memory

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPERATOR = spec.linear_cross_entropy_backward
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def head(tokens, hidden, rows, dtype, *, softmax=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, hidden, generator=generator).to(dtype)
    w = (torch.randn(rows, hidden, generator=generator) * hidden**-0.5).to(dtype)
    logits = x.float() @ w.float().t()
    top = logits.amax(1)
    total = (logits - top[:, None]).exp().sum(1) * 1.5
    mask = torch.rand(tokens, generator=generator) < 0.5
    target = torch.randint(-3, rows + 3, (tokens,), generator=generator)
    given = (None, None, (logits - top[:, None]).exp() / total[:, None]) if softmax else (top, total, None)
    args = (torch.randn(tokens, generator=generator), x, w, mask, target, 0.0, *given)
    return tuple(arg.to(DEVICE) if isinstance(arg, torch.Tensor) else arg for arg in args)


def check(args):
    """Against float64, by a naive run in the same dtype; returns the plan."""
    dtype = args[1].dtype
    rounding = None if dtype == torch.float32 else dtype
    plan = OPERATOR.plan(args, backend="triton")
    with poisoned_memory():
        results = OPERATOR(*args, backend="triton")
    expected = reference.linear_cross_entropy_backward(*widen(args), rounding=rounding)
    naive = reference.linear_cross_entropy_backward(*widen(args, torch.float32), rounding=rounding)
    for label, result, true, base in zip(("input_grad", "weight_grad"), results, expected, naive, strict=True):
        assert_within_baseline(result, true, base.to(dtype), label)
    return plan


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks and strips of a few tiles, as if memory were short."""
    monkeypatch.setattr(choose, "WHOLE_P", 0)
    for name in ("P_ALONE", "P_BESIDE_LOGITS", "P_OF_TWO"):
        monkeypatch.setattr(choose, name, 1 << 13)
    for name in ("LOGITS", "SPARE_LOGITS"):
        monkeypatch.setattr(choose, name, 1 << 17)
    OPERATOR._plans.clear()
    yield
    OPERATOR._plans.clear()


@pytest.mark.interpreted(dtype=DTYPES[:1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize(("tokens", "rows"), [(34, 608), (530, 40)])
def test_chunks_along_either_side_add_up(small_chunks, tokens, rows, softmax, dtype):
    plan = check(head(tokens, 40, rows, dtype, softmax=softmax))
    cut = plan.launch._launch._way.cut
    assert len(cut.chunks) == 3
    assert cut.along_vocabulary == (rows > tokens)


@pytest.mark.parametrize("few", [0, 256], ids=["packed", "as they lie"])
@pytest.mark.parametrize("hidden", [1, 7, 66])
def test_rows_that_are_not_aligned(small_chunks, hidden, few, monkeypatch):
    for name, size in {"FEW_TOKENS": few, "FEW_OF_ODD": few, "UNPACKED": 1 << 14}.items():
        monkeypatch.setattr(choose_rows, name, size)
    check(head(20, hidden, 300, torch.bfloat16))


def test_a_view_at_an_odd_address_is_as_right():
    args = list(head(20, 64, 300, torch.bfloat16))
    for index in (1, 2):
        shifted = torch.zeros(args[index].shape[0], 72, dtype=torch.bfloat16, device=DEVICE)[:, 1:65]
        args[index] = shifted.copy_(args[index])
    check(args)


@pytest.mark.parametrize(
    "dims", [(8192, 4096, 128256), (8192, 4096, 16032), (4096, 2048, 32000), (16384, 5120, 19008), (60000, 64, 61000)]
)
def test_memory_is_bounded_and_p_never_whole(dims):
    """Beside the outputs and one float32 accumulator, 256 MiB at most."""
    tokens, hidden, rows = dims
    meta = [
        torch.empty(shape, dtype=dtype, device="meta")
        for shape, dtype in (
            ((tokens,), torch.float32), ((tokens, hidden), torch.bfloat16), ((rows, hidden), torch.bfloat16),
            ((tokens,), torch.bool), ((tokens,), torch.int64), ((tokens,), torch.float32),
        )
    ]  # fmt: skip
    call, _ = OPERATOR.judge((*meta[:5], 0.0, meta[5], meta[5], None))
    for budget, strip in (
        (choose.P_ALONE, choose.SPARE_LOGITS),
        (choose.P_BESIDE_LOGITS, choose.LOGITS),
    ):
        cut = choose.cut(call, budget)
        held = cut.rows * cut.columns * 2 + choose.strip_rows(cut.rows, cut.columns, strip) * cut.columns * 4
        assert len(cut.chunks) > 1
        assert held + 32 * tokens <= 256 << 20
        covered = [(chunk.v0, chunk.v1) for chunk in cut.chunks]
        assert covered[0][0] == 0
        assert covered[-1][1] == rows
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(covered))
