"""The GPU kernels of heads whose rows begin anywhere: right, within the budget, by products that are fast."""

import os
import time

import pytest
import torch
from test_linear_cross_entropy_training import GPU, OPERATOR, check, head

from aclgrad.gpu import products
from aclgrad.gpu.products import multiply_in_parts
from aclgrad.ops.linear_cross_entropy import training
from aclgrad.ops.linear_cross_entropy.triton import choose, choose_rows
from aclgrad.ops.linear_cross_entropy.triton.training import together
from aclgrad.testing import judge, poisoned_memory

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if GPU else "cpu"
HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture
def little_memory(monkeypatch):
    """Rows are packed, and gradients brought to their rows, 256 at a time; nothing is read as it lies."""
    for name, size in {"FEW_TOKENS": 0, "FEW_OF_ODD": 0, "PACKED": 1, "UNPACKED": 1}.items():
        monkeypatch.setattr(choose_rows, name, size)
    OPERATOR._plans.clear()
    yield monkeypatch
    OPERATOR._plans.clear()


def trained(dims, dtype):
    with torch.device(DEVICE):
        x, w, target = head(*dims, dtype)
        with poisoned_memory():
            results = training.loss_and_gradients(x, w, target, backend="triton")
        check(results, x, w, target)
        with poisoned_memory(0x7B):
            again = training.loss_and_gradients(x, w, target, backend="triton")
    assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))


@pytest.mark.interpreted(dtype=HALVES[:1], dims=[(40, 7, 700)])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dims", [(40, 7, 700), (40, 65, 1030), (129, 333, 5003), (700, 1049, 9001)], ids=str)
def test_rows_are_packed_some_at_a_time(dims, dtype, little_memory):
    trained(dims, dtype)


@pytest.mark.interpreted(dtype=HALVES[:1])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("twice", [False, True], ids=["kept", "made twice"])
def test_rows_are_packed_for_chunks(twice, dtype, little_memory):
    dims = (132, 9, 270)
    little_memory.setattr(choose, "makes_logits_twice", lambda call: twice)
    if not twice:
        little_memory.setattr(choose, "BUDGET", 150_000)
        little_memory.setattr(choose, "WEIGHT_GRAD_SUMS", 0)
    trained(dims, dtype)
    with torch.device(DEVICE):
        x, w, target = head(*dims, dtype)
        found = OPERATOR.plan((x, w, target, -100, True, True, True), backend="triton").describe()
    assert ("logits for the loss" if twice else "chunks of tokens") in found, found


@pytest.mark.interpreted(dtype=HALVES[:1])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dims", [(300, 7, 150), (150, 7, 600)], ids=["more tokens", "more classes"])
def test_rows_of_tokens_with_losses_of_their_own(dims, dtype, little_memory):
    little_memory.setattr(choose, "BUDGET", 100_000)  # so that what is summed comes in groups
    for operator in (training.losses, training.gradients):
        operator._plans.clear()
    with torch.device(DEVICE):
        x, w, target = head(*dims, dtype)
        with poisoned_memory():
            loss, *found = training.token_losses(x, w, target, backend="triton")
            grads = training.token_gradients(torch.ones(dims[0]), x, w, target, found, backend="triton")
        check((loss, *grads), x, w, target, reduction="none")
    for operator in (training.losses, training.gradients):
        operator._plans.clear()


@pytest.mark.interpreted(dtype=HALVES[:1], dims=[(40, 7, 700)])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dims", [(40, 7, 700), (3, 65, 1030), (128, 333, 5003), (60, 1049, 70001)], ids=str)
def test_few_tokens_read_rows_as_they_lie(dims, dtype):
    trained(dims, dtype)


@pytest.mark.needs_gpu
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("dims", [(64, 3648, 6080), (1, 1024, 300), (90, 1280, 6166), (33, 2000, 16001)], ids=str)
def test_few_tiles_are_the_librarys(dims, dtype):
    trained(dims, dtype)


PROGRAM = """
import random, sys, torch
from aclgrad.core.devices import described
from aclgrad.frontends.cli.sizes import without_memory
from aclgrad.ops.linear_cross_entropy.training import gradients, losses, together
from aclgrad.ops.linear_cross_entropy.triton import choose

dice = random.Random(int(sys.argv[1]))
for _ in range(20):
    tokens, features, vocabulary = (round(2 ** dice.uniform(*limits)) for limits in ((5, 15), (8, 13), (10, 18)))
    dtype = dice.choice([torch.bfloat16, torch.float32])
    def meta(*shape, dtype=dtype):
        return without_memory(torch.empty(shape, dtype=dtype, device="meta"), described("h200"))
    x, w, target = meta(tokens, features), meta(vocabulary, features), meta(tokens, dtype=torch.int64)
    found = meta(tokens, dtype=torch.float32)
    for operator, args in (
        (together, (x, w, target, -100, True, True, True)),
        (losses, (x, w, target, -100)),
        (gradients, (found, x, w, target, -100, found, found, found, True, True)),
    ):
        size = operator.plan(operator.spec.completed(args)).workspace_size - choose.OF_A_TOKEN * tokens
        most = 1.5 if operator is not together else 1.05 if dtype == torch.float32 else 1.0
        if size > choose.BUDGET * most:
            print(operator.spec.name, tokens, features, vocabulary, dtype, f"{size:,} bytes")
"""


@pytest.mark.interpreted(dtype=HALVES[:1])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_logits_are_made_twice_only_within_the_budget(dtype, little_memory):
    little_memory.setattr(choose, "BUDGET", 100_000)
    with torch.device(DEVICE):
        x, w, target = head(132, 9, 270, dtype)
    call, _ = OPERATOR.judge(OPERATOR.spec.completed((x, w, target, -100, True, True, True)))
    assert choose.makes_logits_twice(call)
    assert "chunks of tokens" in together.loss_and_gradients(call).describe()


def test_the_workspace_of_any_size_is_within_the_budget(python):
    """Sizes are drawn anew in every run. Beside the budget there are the numbers of each token.

    Half of it again may be what tiles say of tokens that have losses of their own, and rows that are packed; a
    twentieth the strip of the last few tokens in float32.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    seed = str(time.time_ns() >> 20)
    done = python("-c", PROGRAM, seed, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout, f"seed {seed}:\n{done.stdout}"


@pytest.fixture
def parts(monkeypatch):
    """The products that the library is asked for."""
    monkeypatch.setattr(products, "WORTH_CUTTING", 0)
    found, multiply = [], products.multiply

    def noted(out, a, b, *, add=False):
        found.append((len(out), b.shape[1], a.shape[1], add))
        multiply(out, a, b, add=add)

    monkeypatch.setattr(products, "multiply", noted)
    return found


def padded(rows, columns, dtype, by=64):
    whole = torch.full((rows, -(-columns // by) * by), torch.nan, dtype=dtype, device=DEVICE)
    whole[:, :columns] = torch.randn(rows, columns, device=DEVICE)
    return whole[:, :columns]


@pytest.mark.parametrize(
    ("wide", "turned", "expected"),
    [
        (False, "", [(37, 40, 51, False), (37, 1, 51, False)]),  # a half type is rounded once
        (True, "", [(37, 40, 48, False), (37, 40, 3, True), (37, 1, 51, False)]),
        (True, "a", [(32, 40, 51, False), (32, 1, 51, False), (5, 41, 51, False)]),
        (True, "b", [(37, 40, 48, False), (37, 40, 3, True), (37, 1, 51, False)]),
        (True, "ab", [(32, 40, 48, False), (32, 40, 3, True), (32, 1, 51, False), (5, 41, 51, False)]),
    ],
    ids=["halves", "float32", "a turned", "b turned", "both turned"],
)
@pytest.mark.parametrize("add", [False, True])
def test_products_are_cut_where_sides_are_ragged(wide, turned, expected, add, parts):
    dtype = torch.bfloat16
    a = padded(51, 37, dtype).t() if "a" in turned else padded(37, 51, dtype)
    b = padded(41, 51, dtype).t() if "b" in turned else padded(51, 41, dtype)
    out = padded(37, 41, torch.float32 if wide else dtype)
    before = out.clone()
    multiply_in_parts(out, a, b, add=add)
    assert parts == [(m, n, k, later or add) for m, n, k, later in expected]
    true, base = a.double() @ b.double(), (a.float() @ b.float())
    if add:
        true, base = true + before, base + before
    assert judge(out, true, base.to(out.dtype), out.dtype).ok


def test_products_at_odd_addresses_stay_whole(parts):
    a, b = torch.randn(37, 51, device=DEVICE).bfloat16(), torch.randn(51, 41, device=DEVICE).bfloat16()
    multiply_in_parts(torch.empty(37, 41, device=DEVICE), a, b)
    assert parts == [(37, 41, 51, False)]
