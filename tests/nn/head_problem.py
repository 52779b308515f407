"""One head with its tokens and any options, its truth in float64, and rows of options that try every pair."""

import itertools
import random

import torch
import torch.nn.functional as F

import aclgrad.nn
from aclgrad.testing import judge
from aclgrad.testing.cases import Data
from aclgrad.testing.tolerance import naive_dtype

TOKENS, FEATURES, CLASSES = 23, 12, 301
LEVELS = {
    "bias": (False, True),
    "classes": (False, True),
    "reduction": ("mean", "sum", "none"),
    "ignored": (False, True),
    "label_smoothing": (0.0, 0.1, 1.0),
    "softcap": (None, 2.0, 30.0),
    "logit_scale": (1.0, 0.6, -1.7),
    "z_loss": (0.0, 1e-2),
    "weighs": (False, True),
    "normalizer": (None, 9, "tensor"),
    "return_stats": (False, True),
}


def pairwise(levels, seed=0):
    """Rows in which every two levels of every two options meet."""
    draw, names = random.Random(seed), list(levels)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(levels[a]))
        for j in range(len(levels[b]))
    }
    rows = []
    while missing:
        drawn = [{name: draw.randrange(len(levels[name])) for name in names} for _ in range(60)]
        met = [set(itertools.combinations(row.items(), 2)) & missing for row in drawn]
        best = max(range(len(drawn)), key=lambda k: len(met[k]))
        missing -= met[best]
        rows.append({name: levels[name][index] for name, index in drawn[best].items()})
    return rows


def alone(levels):
    """Rows in which one option differs from the first level of all."""
    first = {name: values[0] for name, values in levels.items()}
    return [first, *({**first, name: value} for name, values in levels.items() for value in values[1:])]


ROWS = [*alone(LEVELS), *pairwise(LEVELS)]


def shown(row):
    return ",".join(f"{name}={value}" for name, value in row.items() if value != LEVELS[name][0]) or "plain"


class Problem:
    """One head with its tokens: what a row of options calls for, in any dtype."""

    def __init__(self, row, dtype, device="cpu", seed=0, sizes=(TOKENS, FEATURES, CLASSES)):
        data = Data(torch.float64, seed=seed)
        tokens, features, classes = self.sizes = sizes
        x, w = data.normal(tokens, features), data.normal(classes, features, scale=features**-0.5)
        self.target = data.integers(0, classes, tokens)
        if row["ignored"]:
            self.target[data.flags(tokens, share=0.3)] = -100
        bias, weights = data.normal(classes), data.uniform(0.2, 2.0, tokens)
        self.classes = data.uniform(0.1, 3.0, classes) if row["classes"] else None
        self.row, self.dtype, self.device, self.target = row, dtype, device, self.target.to(device)
        by = torch.tensor(7.5, dtype=torch.float64)
        wide = torch.promote_types(dtype, torch.float32)
        leaves = {"x": x.to(dtype), "w": w.to(dtype)}
        leaves |= {"bias": bias.to(dtype)} if row["bias"] else {}
        leaves |= {"weights": weights.to(wide)} if row["weighs"] else {}
        self.divides = row["normalizer"] is not None and row["reduction"] == "mean"
        leaves |= {"by": by.to(wide)} if self.divides and row["normalizer"] == "tensor" else {}
        self.leaves = {name: leaf.to(device) for name, leaf in leaves.items()}
        self.upstream = [data.normal(tokens) for _ in range(4)]

    def results(self, compute, dtype=None):
        """What `compute(problem, leaves)` returns, and its gradients, by name."""
        leaves = {k: v.detach().to(dtype or v.dtype).clone().requires_grad_() for k, v in self.leaves.items()}
        outputs = compute(self, leaves)
        upstream = [
            (g if out.dim() else g[0]).to(out.device, torch.float64)
            for g, out in zip(self.upstream, outputs, strict=False)
        ]
        total = sum((out.double() * g).sum() for out, g in zip(outputs, upstream, strict=True))
        gradients = torch.autograd.grad(total, list(leaves.values()))
        names = ("loss", "logprob", "entropy", "lse")[: len(outputs)]
        found = dict(zip(names, (out.detach() for out in outputs), strict=True))
        return {**found, **dict(zip(leaves, gradients, strict=True))}

    def number(self, leaves):
        return leaves.get("by", self.row["normalizer"]) if self.divides else None


def formula(problem, leaves):
    """All logits at once, by torch's operations."""
    row, target = problem.row, problem.target
    z = F.linear(leaves["x"], leaves["w"], leaves.get("bias"))
    z = row["logit_scale"] * z.to(torch.promote_types(z.dtype, torch.float32))
    if row["softcap"]:
        z = row["softcap"] * torch.tanh(z / row["softcap"])
    classes = None if problem.classes is None else problem.classes.to(z)
    losses = F.cross_entropy(z, target, classes, reduction="none", label_smoothing=row["label_smoothing"])
    lse, counts = z.logsumexp(1), target != -100
    losses = losses + torch.where(counts, row["z_loss"] * lse.square(), 0.0)
    weighed = losses * leaves["weights"].to(z) if "weights" in leaves else losses
    number = problem.number(leaves)
    if number is None:
        number = counts.sum() if classes is None else classes[target[counts]].sum()
    loss = {"none": weighed, "sum": weighed.sum(), "mean": weighed.sum() / number}[row["reduction"]]
    if not row["return_stats"]:
        return (loss,)
    log_p = z - lse[:, None]
    logprob = torch.where(counts, log_p.gather(1, target.clamp(0)[:, None])[:, 0], 0.0)
    return loss, logprob, -(log_p.exp() * log_p).sum(1), lse


OPTIONS = ("reduction", "label_smoothing", "softcap", "logit_scale", "z_loss", "return_stats")


def ours(problem, leaves, function=aclgrad.nn.linear_cross_entropy):
    """The same by the head."""
    classes = None if problem.classes is None else problem.classes.to(problem.device, leaves["x"].dtype)
    found = function(
        leaves["x"], leaves["w"], problem.target, linear_bias=leaves.get("bias"), weight=classes,
        token_weight=leaves.get("weights"), normalizer=problem.number(leaves),
        **{name: problem.row[name] for name in OPTIONS},
    )  # fmt: skip
    return (found[0], *found[1][:3]) if problem.row["return_stats"] else (found,)


def rounded(problem, leaves):
    """The formula with the class weights that a call in this dtype gets."""
    if problem.classes is not None:
        problem.classes = problem.classes.to(problem.dtype).double()
    return formula(problem, leaves)


def assert_right(problem, results):
    truth = problem.results(rounded, torch.float64)
    naive = problem.results(formula, naive_dtype(problem.dtype))
    assert set(results) == set(truth)
    for name, result in results.items():
        assert result.shape == truth[name].shape, name
        assert_close(problem, result, truth[name].to(result.device), naive[name], name)


def assert_close(problem, result, exact, rough, label):
    """By the tolerance rule; of float64 the truth is no better, so by what sums of so many terms may be off by."""
    if problem.dtype == torch.float64:
        bound = torch.finfo(torch.float64).eps * sum(problem.sizes) * exact.abs().max()
        assert (result - exact).abs().max() <= bound, label
        return
    verdict = judge(result, exact, rough, problem.dtype)
    assert verdict.ok, f"{label}: {verdict}"
