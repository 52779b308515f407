"""Tokens over a distribution of logits, the head's loss of them and its gradients, judged beside eager torch.

Of a confident token p(target) − 1 is small. It must not carry a rounding error of the logits, which is large where
these are. Tokens of a case are equally sure, so that nobody hides behind the others.
"""

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

import aclgrad.nn
from aclgrad.ops.linear_cross_entropy import training
from aclgrad.testing import judge
from aclgrad.testing.tolerance import BASELINE_FACTOR, FEW_ULP

SIZES = 48, 40, 300
"""Tokens, features, classes."""


def sure(generator, doubt, sizes=SIZES):
    """Tokens whose probability of another class than their target is about `doubt`."""
    tokens, hidden, rows = sizes
    w = torch.randn(rows, hidden, generator=generator, dtype=torch.float64)
    target = torch.randint(0, rows, (tokens,), generator=generator)
    noise = torch.randn(tokens, hidden, generator=generator, dtype=torch.float64) * 0.2
    low, high = 0.0, 4.0
    for _ in range(40):
        scale = (low + high) / 2
        logits = (w[target] * scale + noise) @ w.t()
        median = -torch.expm1(-F.cross_entropy(logits, target, reduction="none")).median()
        low, high = (scale, high) if median > doubt else (low, scale)
    return w[target] * scale + noise, w, target


def spread(generator, deviation, sizes=SIZES):
    """Logits of this standard deviation, targets at random."""
    tokens, hidden, rows = sizes
    x = torch.randn(tokens, hidden, generator=generator, dtype=torch.float64)
    w = torch.randn(rows, hidden, generator=generator, dtype=torch.float64) * (deviation * hidden**-0.5)
    return x, w, torch.randint(0, rows, (tokens,), generator=generator)


def offset(generator, amount, sizes=SIZES):
    """All logits of a token moved by about the same large amount, which changes no probability."""
    x, w, target = sure(generator, 1e-3, sizes)
    x[:, 0], w[:, 0] = math.sqrt(amount), math.sqrt(amount)
    return x, w, target


def dominated(generator, lead, sizes=SIZES):
    """One class far ahead of all others, the target of half the tokens."""
    x, w, target = spread(generator, 1.0, sizes)
    x[:, 0] = 3.5 + torch.rand(len(x), generator=generator, dtype=torch.float64)  # sums of one number err one way
    w[:, 0], w[7, 0] = 0.0, lead / 4
    target[::2] = 7
    return x, w, target


CASES = {
    **{f"doubt {doubt:g}": (sure, doubt) for doubt in (0.9, 0.5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)},
    **{f"deviation {deviation:g}": (spread, deviation) for deviation in (0.1, 1.0, 8.0, 50.0)},
    **{f"offset {amount:g}": (offset, amount) for amount in (64.0, 1024.0, 4096.0)},
    **{f"lead {lead:g}": (dominated, lead) for lead in (10.0, 40.0)},
}


@cache
def drawn(case, dtype, seed):
    make, argument = CASES[case]
    x, w, target = make(torch.Generator("cpu").manual_seed(seed), argument)
    target[1::9] = training.IGNORE_INDEX
    return x.to(dtype), w.to(dtype), target


def scales(count, dtype, device="cpu"):
    """Incoming gradients that are not 1."""
    return torch.linspace(0.5, 1.5, count, dtype=dtype, device=device)


def exact(x, w, target, reduction):
    """(loss, input_grad, weight_grad) by the textbook, in more digits than the dtype has."""
    wide = np.longdouble if x.dtype == torch.float64 else np.float64
    x, w = (t.detach().cpu().double().numpy().astype(wide) for t in (x, w))
    target = target.cpu()
    rows, counted = target.clamp(min=0).numpy(), (target != training.IGNORE_INDEX).numpy()
    token = np.arange(len(rows))
    logits = x @ w.T
    shifted = logits - logits.max(1, keepdims=True)
    total = np.exp(shifted).sum(1)
    p = np.exp(shifted) / total[:, None]
    p[token, rows] = 0
    p[token, rows] = -p.sum(1)  # what p(target) − 1 is, without a difference
    doubt = -p[token, rows]
    losses = np.where(doubt < 0.5, -np.log1p(-np.minimum(doubt, 0.5)), np.log(total) - shifted[token, rows])
    losses = np.where(counted, losses, 0)
    grad, loss = scales(len(rows), torch.float64).numpy(), losses
    if reduction != "none":
        grad = np.full(len(rows), 0.5) / (counted.sum() if reduction == "mean" else 1)
        loss = losses.sum() / (counted.sum() if reduction == "mean" else 1)
    p *= np.where(counted, grad, 0)[:, None]
    return [torch.tensor(np.asarray(value, dtype=np.float64)) for value in (loss, p @ w, p.T @ x)]


def differentiated(function, x, w, target, dtype, reduction):
    """(loss, input_grad, weight_grad) of a function of the loss."""
    x, w = (t.detach().to(dtype).requires_grad_() for t in (x, w))
    loss = function(x, w, target, reduction)
    scale = scales(loss.numel(), loss.dtype, loss.device).reshape(loss.shape)
    return loss.detach(), *torch.autograd.grad((loss * scale).sum(), (x, w))


def eager(x, w, target, reduction):
    return F.cross_entropy(F.linear(x, w), target, reduction=reduction)


def ours(x, w, target, reduction):
    return aclgrad.nn.linear_cross_entropy(x, w, target, reduction=reduction)


def check(results, x, w, target, reduction):
    wrong = list(findings(results, x, w, target, reduction))
    assert not wrong, "\n".join(wrong)


def findings(results, x, w, target, reduction):
    """What is wrong with the results, in words."""
    truth, naive = exact(x, w, target, reduction), differentiated(eager, x, w, target, x.dtype, reduction)
    for label, result, true, base in zip(("loss", "input_grad", "weight_grad"), results, truth, naive, strict=True):
        if result.dim():
            verdict = judge(result.cpu(), true, base.cpu(), x.dtype)
            if not verdict.ok:
                yield f"{label}: {verdict}"
        else:
            error, allowed = abs(result.cpu().double() - true), allowed_for_one(x, w, target, reduction, true)
            if not error <= allowed:
                yield f"{label}: error {error:.3g} (allowed {allowed:.3g})"


def allowed_for_one(x, w, target, reduction, truth):
    """The rule for a single number, whose error is a matter of luck: as if no token's error made up for another's."""
    naive = F.cross_entropy(F.linear(x, w), target, reduction="none").cpu()
    errors = (naive - exact(x, w, target, "none")[0]).abs().sum()
    if reduction == "mean":
        errors /= (target != training.IGNORE_INDEX).sum().cpu()
    return BASELINE_FACTOR * errors + FEW_ULP * torch.finfo(x.dtype).eps * truth.abs()
