"""The head over shards of a vocabulary: properties that need no second process. The shards are simulated."""

import random

import pytest
import torch
from head_problem import LEVELS, ROWS, Problem, assert_right, ours, shown
from simulated import cuts, leaves, over

import aclgrad.nn
from aclgrad.core.dispatch import chosen_backend
from aclgrad.core.errors import InvalidArgument, Unsupported
from aclgrad.ops.linear_cross_entropy.shards import work
from aclgrad.ops.linear_cross_entropy.shards.ranges import even_ranges
from aclgrad.ops.linear_cross_entropy.shards.tokens import TokenSplit
from aclgrad.testing import poisoned_memory
from aclgrad.testing.cases import Data

FIRST = {name: values[0] for name, values in LEVELS.items()}
SIZES = {"recomputed": (23, 12), "kept": (11, 24)}
"""Tokens and features: where the memory of weight_grad has no place for all logits, and where it has."""
VOCABULARIES = (5, 7, 503)


def sampled(seed):
    """A row of options, ranges of a vocabulary and sizes."""
    draw = random.Random(seed)
    classes, ranks = draw.choice(VOCABULARIES), draw.randint(1, 4)
    return ROWS[seed % len(ROWS)], cuts(classes, ranks, seed), (*draw.choice(list(SIZES.values())), classes)


@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float32,
    *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (torch.float16, torch.float64)),
], ids=str)  # fmt: skip
def test_sampled_worlds_vocabularies_and_options(dtype):
    """On poisoned memory; uneven shards and empty ones."""
    for seed in range(2 * len(ROWS)):
        row, ranges, sizes = sampled(seed)
        problem = Problem(row, dtype, seed=seed, sizes=sizes)
        with poisoned_memory():
            results = problem.results(lambda *given, ranges=ranges: ours(*given, over(ranges)))
        try:
            assert_right(problem, results)
        except AssertionError as wrong:
            raise AssertionError(f"{shown(row)} {ranges} {sizes}: {wrong}") from wrong


@pytest.mark.parametrize("shape", [(11,), (3, 5), (2, 3, 4)], ids=str)
def test_tokens_that_are_split_too(shape):
    """Along any dimension, also where some ranks have fewer or none: the same loss, and every rank's own gradient."""
    (x, w, b), classes = leaves((*shape, 8), (7, 8), (7,)), 7
    target = Data(seed=2).integers(0, classes, *shape)
    options = {"linear_bias": b, "return_stats": True, "z_loss": 0.1, "label_smoothing": 0.2}
    loss, stats = aclgrad.nn.linear_cross_entropy(x, w, target, **options)
    expected = torch.autograd.grad(loss + stats.entropy.square().sum(), (x, w, b))
    for dim in range(len(shape)):
        for ranks in (1, 2, 4, 5):
            found, others = over(even_ranges(classes, ranks), split_dim=dim)(x, w, target, **options)
            torch.testing.assert_close((found, *others[:3]), (loss, *stats[:3]))
            gradients = torch.autograd.grad(found + others.entropy.square().sum(), (x, w, b))
            torch.testing.assert_close(gradients, expected)


def test_a_single_token_is_not_split():
    with pytest.raises(InvalidArgument, match=r"target has shape \[\], expected a dimension 0 of tokens to split"):
        TokenSplit((), 0, 2).require(0, torch.ones(12))


def test_no_tokens():
    x, w = leaves((0, 8), (7, 8))
    loss, stats = over(even_ranges(7, 3))(x, w, torch.zeros(0, dtype=torch.int64), reduction="sum", return_stats=True)
    assert loss == 0 and stats.lse.shape == (0,)
    assert all(not gradient.any() for gradient in torch.autograd.grad(loss, (x, w)))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_graph_that_is_kept_gives_the_same_gradients_again(sizes):
    """The logits that were kept are used up; they are computed again."""
    x, w = leaves(sizes, (30, sizes[1]))
    target = Data(seed=3).integers(0, 30, sizes[0])
    loss = over(even_ranges(30, 2))(x, w, target, softcap=3.0)
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, (x, w), retain_graph=True), first)
    (alone,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(alone, first[0])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("frozen", ["x", "w", "b", "xb", "wx"])
def test_frozen_leaves(frozen, sizes):
    problem = Problem({**FIRST, "bias": True}, torch.float32, sizes=(*sizes, 30))
    whole = problem.results(ours)
    x, w, b = (problem.leaves[name].clone().requires_grad_(name[0] not in frozen) for name in ("x", "w", "bias"))
    loss = over(even_ranges(30, 3))(x, w, problem.target, linear_bias=b)
    wanted = {name: leaf for name, leaf in {"x": x, "w": w, "bias": b}.items() if leaf.requires_grad}
    scale = problem.upstream[0][0].float()
    for (name, _), gradient in zip(
        wanted.items(), torch.autograd.grad(loss * scale, list(wanted.values())), strict=True
    ):
        torch.testing.assert_close(gradient, whole[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_class_weights_of_any_layout(sizes):
    """Of every other number, and of one number for all: as a copy of them."""
    x, w = leaves(sizes, (30, sizes[1]))
    target, numbers = Data(seed=3).integers(0, 30, sizes[0]), Data(seed=4).uniform(0.2, 2.0, 60)
    for weight in (numbers[::2], numbers[3].expand(30)):
        found, expected = (
            torch.autograd.grad(over(even_ranges(30, 3))(x, w, target, weight=each, label_smoothing=0.3), (x, w))
            for each in (weight, weight.clone(memory_format=torch.contiguous_format))
        )
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_no_gradient_no_graph():
    x, w = leaves((5, 8), (9, 8))
    with torch.no_grad():
        assert not over(even_ranges(9, 2))(x, w, torch.arange(5)).requires_grad


def test_a_gradient_is_not_differentiated_again():
    x, w = leaves((5, 8), (9, 8))
    loss = over(even_ranges(9, 2))(x, w, torch.arange(5))
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(Unsupported, match="cannot be differentiated again"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_confident_prediction(dtype):
    """p(target) − 1 is a sum over the other classes, wherever these are."""
    data = Data(torch.float64, seed=5)
    x, w = data.normal(48, 64), data.normal(300, 64)
    target = data.integers(0, 300, 48)
    x = x * 0.2 + w[target] * 0.35
    low = [t.to(dtype).requires_grad_() for t in (x, w)]
    high = [t.detach().double().requires_grad_() for t in low]
    exact = torch.autograd.grad(torch.nn.functional.cross_entropy(high[0] @ high[1].t(), target), high)
    eager = torch.autograd.grad(torch.nn.functional.cross_entropy((low[0] @ low[1].t()).float(), target), low)
    split = torch.autograd.grad(over(cuts(300, 4, 1))(*low, target), low)
    for ours_, theirs, true in zip(split, eager, exact, strict=True):
        assert (ours_.double() - true).norm() <= (theirs.double() - true).norm()


def test_logits_of_a_large_range_with_smoothing():
    x, w = leaves((6, 4), (40, 4), dtype=torch.float64)
    x.data *= 150
    target = Data(seed=1).integers(0, 40, 6)
    want = torch.nn.functional.cross_entropy(x @ w.t(), target, label_smoothing=0.1)
    found = over(cuts(40, 3, 2))(x.float(), w.float(), target, label_smoothing=0.1)
    torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_what_is_not_finite_spreads_as_in_a_whole_vocabulary(value):
    """From the bias of one class, the token's own or another's, in whichever shard; statistics as well."""
    x, w = leaves((4, 8), (12, 8))
    target = torch.tensor([0, 5, 11, 7])
    for at in (0, 5, 8, 11):
        bias = torch.zeros(12)
        bias[at] = value
        whole, known = aclgrad.nn.linear_cross_entropy(
            x, w, target, linear_bias=bias, reduction="none", return_stats=True
        )
        for ranks in (2, 3, 12):
            split, found = over(even_ranges(12, ranks))(
                x, w, target, linear_bias=bias, reduction="none", return_stats=True
            )
            torch.testing.assert_close(
                (split, *found[:3]),
                (whole, *known[:3]),
                equal_nan=True,
                msg=lambda why: f"{at} of {ranks}: {why}",  # noqa: B023
            )
            assert torch.equal(found.correct, known.correct)


def test_the_first_of_equal_classes_wins_over_all_shards():
    x, w = torch.ones(5, 2), torch.zeros(12, 2)
    target = torch.tensor([0, 3, 11, -100, 0])
    x[4] = torch.nan
    for ranks in (1, 2, 5, 12):
        _, stats = over(even_ranges(12, ranks))(x, w, target, return_stats=True)
        assert stats.correct.tolist() == [True, False, False, False, False]
    data = Data(seed=4)
    x, w = data.normal(60, 8), data.normal(150, 8)
    target = (x @ w.t()).argmax(1)
    wrong = data.flags(60, share=0.5)
    target[wrong] = (target[wrong] + 1) % 150
    _, stats = over(cuts(150, 4, 3))(x, w, target, return_stats=True)
    assert torch.equal(stats.correct, ~wrong)


@pytest.mark.parametrize("target", [-1, 12, 500])
def test_a_target_that_nobody_has(target):
    x, w = leaves((3, 8), (12, 8))
    with pytest.raises(InvalidArgument, match=rf"target\[1\] is {target}, expected 0 to 11 or ignore_index = -100"):
        over(even_ranges(12, 3))(x, w, torch.tensor([0, target, -100]))


def test_every_run_gives_the_same_bits():
    (x, w), target = leaves((11, 24), (503, 24), dtype=torch.bfloat16), Data().integers(0, 503, 11)

    def run():
        loss, stats = over(cuts(503, 4, 7))(x, w, target, return_stats=True, label_smoothing=0.1)
        return loss, *stats, *torch.autograd.grad(loss, (x, w))

    first = run()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(run(), first, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str)
def test_chunks_of_tokens_on_a_gpu(dtype, monkeypatch):
    """The way of a GPU, where input_grad of a chunk comes first; interpreted where there is none."""
    pytest.importorskip("triton")
    from aclgrad.core.plan import Remembered
    from aclgrad.ops.linear_cross_entropy.shards import autograd
    from aclgrad.ops.linear_cross_entropy.spec_shards import shard_gradients
    from aclgrad.ops.linear_cross_entropy.triton import shard_chunks

    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setattr(shard_chunks, "plan_chunks", Remembered(shard_chunks.ShardChunks, shard_gradients))
    monkeypatch.setattr(autograd, "chunk_tokens", lambda x, most: 5)
    monkeypatch.setattr(autograd, "way_for", lambda *_, **__: work.InChunks())
    row = dict(zip(LEVELS, (True, True, "mean", True, 0.1, 2.0, 0.6, 1e-2, True, "tensor", True), strict=True))
    problem = Problem(row, dtype, device, seed=1, sizes=(11, 8, 30))
    token = chosen_backend.set("triton")
    try:
        results = problem.results(lambda *given: ours(*given, over(cuts(30, 2, 1))))
    finally:
        chosen_backend.reset(token)
    assert_right(problem, results)
    assert all(len(plan._chunks) == 3 for plan in shard_chunks.plan_chunks._made.values())
