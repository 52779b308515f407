"""Random heads: any size and options against the formula in float64, any logits beside eager torch."""

from functools import partial

import pytest
import tokens
import torch
from draws import DEVICE, GPU, every_draw, fitting
from head_problem import LEVELS, Problem, assert_right, ours, shown
from matrix import same

import aclgrad.nn
from aclgrad.testing import poisoned_memory

DRAWS = 300 if GPU else 5
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LARGEST = {"BT": 5000, "H": 2000, "V": 60_000} if GPU else {"BT": 40, "H": 30, "V": 400}
BOUNDS = {("BT", "V"): 40_000_000, ("BT", "H", "V"): 2 * 10**11, ("H", "V"): 40_000_000}
VOCABULARIES = (50257, 50257, 32000, 128256) if GPU else (257,)


def sizes_of(dice):
    """Tokens, features and classes, now and then those of a known vocabulary."""
    sizes = fitting(dice, BOUNDS, **LARGEST)
    if dice.random() < 0.25:
        sizes["V"] = dice.choice(VOCABULARIES)
        sizes["BT"], sizes["H"] = min(sizes["BT"], 300), min(sizes["H"], 300)
    if dice.random() < 0.03:
        sizes["BT"] = 0
    sizes["V"] = max(sizes["V"], 2)  # of one class a gradient is 0, and nothing is as close to it
    return tuple(sizes.values())


def with_options(dtype, dice, say):
    row = {name: dice.choice(levels) for name, levels in LEVELS.items()}
    if dice.random() < 0.4:
        row |= {name: LEVELS[name][0] for name in dice.sample(list(LEVELS), 8)}
    sizes, seed = sizes_of(dice), dice.values()
    if not sizes[0]:
        row["reduction"] = "none"
    say(f"{dtype}, tokens, features, classes {sizes}, {shown(row)}, seed {seed}")
    problem = Problem(row, dtype, DEVICE, seed, sizes)
    with poisoned_memory():
        results = problem.results(ours)
    assert_right(problem, results)
    again = problem.results(ours)
    same(list(again.values()), list(results.values()), f"again, of {list(results)}")


def with_logits(dice, say):
    """All drawn and judged on the CPU."""
    kind, argument = dice.choice([
        (tokens.sure, 10 ** dice.uniform(-7, -0.05)), (tokens.spread, 10 ** dice.uniform(-1, 1.7)),
        (tokens.offset, dice.uniform(10, 4096)), (tokens.dominated, dice.uniform(5, 60)),
    ])  # fmt: skip
    sizes = dice.choice([tokens.SIZES, tokens.SIZES, (1, 33, 50257), (7, 64, 5003), (300, 16, 129), (130, 72, 1030)])
    dtype, reduction, seed = dice.choice(DTYPES), dice.choice(["mean", "sum", "none"]), dice.values()
    say(f"{kind.__name__} {argument}, {sizes}, {dtype}, {reduction}, seed {seed}")
    with torch.device("cpu"):
        x, w, target = kind(torch.Generator().manual_seed(seed), argument, sizes)
        target[1::9] = -100
        x, w, target = x.to(dtype).to(DEVICE), w.to(dtype).to(DEVICE), target.to(DEVICE)
        with poisoned_memory():
            results = tokens.differentiated(tokens.ours, x, w, target, dtype, reduction)
        tokens.check(results, x, w, target, reduction)


def with_odd_targets(dice, say):
    """A target that is no class: an error on a CPU; on a GPU a NaN for that token, and nothing for the others."""
    count, features, classes = sizes = fitting(dice, {}, BT=200, H=64, V=2000).values()
    dtype, seed, ignored = dice.choice(DTYPES), dice.values(), dice.choice([-100, -1, 0, classes + 5])
    wrong = dice.choice([classes, classes + 1, -1, -101, -(1 << 40), 1 << 33])
    at, index = dice.randrange(count), dice.choice([torch.int64, torch.int32])
    if index == torch.int32:
        wrong = max(min(wrong, (1 << 31) - 1), -(1 << 31))
    say(f"{dtype}, {list(sizes)}, target[{at}] {wrong} in {index}, ignored {ignored}, seed {seed}")
    if wrong == ignored:
        return
    generator = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randn(count, features, generator=generator).to(dtype).requires_grad_()
    w = torch.randn(classes, features, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(0, classes, (count,), generator=generator).to(index)
    right = aclgrad.nn.linear_cross_entropy(x, w, target, reduction="none", ignore_index=ignored)
    target[at] = wrong
    for reduction in ("none", "sum", "mean"):
        if not GPU:
            with pytest.raises(aclgrad.InvalidArgument, match="target"):
                aclgrad.nn.linear_cross_entropy(x, w, target, reduction=reduction, ignore_index=ignored)
            continue
        loss = aclgrad.nn.linear_cross_entropy(x, w, target, reduction=reduction, ignore_index=ignored)
        if reduction == "none":
            others = torch.arange(count) != at
            assert bool(loss[at].isnan()) and torch.equal(loss[others], right[others])
        else:
            assert bool(loss.isnan())
        grad, of_weight = torch.autograd.grad(loss.sum(), (x, w))
        assert bool(grad[at].isnan().all()), f"{reduction}: the token's gradient has numbers"
        assert bool(of_weight.isnan().any()), f"{reduction}: the weight's gradient is all numbers"


@pytest.mark.parametrize("part", range(6 if GPU else 1))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_options(dtype, part):
    every_draw(f"head {dtype} {part}", partial(with_options, dtype), DRAWS)


@pytest.mark.parametrize("check", [with_logits, with_odd_targets], ids=lambda check: check.__name__)
def test_heads(check):
    every_draw(f"head {check.__name__}", check, DRAWS)
