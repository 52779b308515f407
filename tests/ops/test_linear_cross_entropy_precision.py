"""The head's loss and gradients over a distribution of logits: no further from float64 than eager torch.

Of a confident token p(target) − 1 is small. It must not carry a rounding error of the logits, which is large where
these are. Tokens of a case are equally sure, so that nobody hides behind the others.
"""

import math
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import aclgrad.nn
from aclgrad.ops.linear_cross_entropy import training
from aclgrad.testing import judge
from aclgrad.testing.tolerance import BASELINE_FACTOR, FEW_ULP

GPU = torch.cuda.is_available()
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
REDUCTIONS = ("mean", "sum", "none")
TOKENS, HIDDEN, ROWS = 48, 40, 300


def sure(generator, doubt):
    """Tokens whose probability of another class than their target is about `doubt`."""
    w = torch.randn(ROWS, HIDDEN, generator=generator, dtype=torch.float64)
    target = torch.randint(0, ROWS, (TOKENS,), generator=generator)
    noise = torch.randn(TOKENS, HIDDEN, generator=generator, dtype=torch.float64) * 0.2
    low, high = 0.0, 4.0
    for _ in range(40):
        scale = (low + high) / 2
        logits = (w[target] * scale + noise) @ w.t()
        median = -torch.expm1(-F.cross_entropy(logits, target, reduction="none")).median()
        low, high = (scale, high) if median > doubt else (low, scale)
    return w[target] * scale + noise, w, target


def spread(generator, deviation):
    """Logits of this standard deviation, targets at random."""
    x = torch.randn(TOKENS, HIDDEN, generator=generator, dtype=torch.float64)
    w = torch.randn(ROWS, HIDDEN, generator=generator, dtype=torch.float64) * (deviation * HIDDEN**-0.5)
    return x, w, torch.randint(0, ROWS, (TOKENS,), generator=generator)


def offset(generator, amount):
    """All logits of a token moved by about the same large amount, which changes no probability."""
    x, w, target = sure(generator, 1e-3)
    x[:, 0], w[:, 0] = math.sqrt(amount), math.sqrt(amount)
    return x, w, target


def dominated(generator, lead):
    """One class far ahead of all others, the target of half the tokens."""
    x, w, target = spread(generator, 1.0)
    x[:, 0], w[:, 0], w[7, 0] = 4.0, 0.0, lead / 4
    target[::2] = 7
    return x, w, target


CASES = {
    **{f"doubt {doubt:g}": (sure, doubt) for doubt in (0.9, 0.5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)},
    **{f"deviation {deviation:g}": (spread, deviation) for deviation in (0.1, 1.0, 8.0, 50.0)},
    **{f"offset {amount:g}": (offset, amount) for amount in (64.0, 1024.0, 4096.0)},
    **{f"lead {lead:g}": (dominated, lead) for lead in (10.0, 40.0)},
}


@cache
def exactly_drawn(case, seed):
    make, argument = CASES[case]
    x, w, target = make(torch.Generator("cpu").manual_seed(seed), argument)
    target[1::9] = training.IGNORE_INDEX
    return x, w, target


def drawn(case, dtype, seed):
    x, w, target = exactly_drawn(case, seed)
    return x.to(dtype), w.to(dtype), target


def scales(count, dtype, device="cpu"):
    """Incoming gradients that are not 1."""
    return torch.linspace(0.5, 1.5, count, dtype=dtype, device=device)


class Textbook:
    """Loss and gradients in more digits than the dtype has, for every reduction."""

    def __init__(self, x, w, target):
        wide = np.longdouble if x.dtype == torch.float64 else np.float64
        self.x, self.w = (t.detach().cpu().double().numpy().astype(wide) for t in (x, w))
        target = target.cpu()
        rows, self.counted = target.clamp(min=0).numpy(), (target != training.IGNORE_INDEX).numpy()
        token = np.arange(len(rows))
        logits = self.x @ self.w.T
        shifted = logits - logits.max(1, keepdims=True)
        total = np.exp(shifted).sum(1)
        self.losses = np.where(self.counted, np.log(total) - shifted[token, rows], 0)
        self.slopes = np.exp(shifted) / total[:, None]
        self.slopes[token, rows] = 0
        self.slopes[token, rows] = -self.slopes.sum(1)  # what p(target) − 1 is, without a difference

    def __call__(self, reduction):
        """(loss, input_grad, weight_grad)."""
        grad, loss = scales(len(self.losses), torch.float64).numpy(), self.losses
        if reduction != "none":
            count = self.counted.sum() if reduction == "mean" else 1
            grad, loss = np.full(len(self.losses), 0.5) / count, self.losses.sum() / count
        slopes = self.slopes * np.where(self.counted, grad, 0)[:, None]
        return [
            torch.tensor(np.asarray(value, dtype=np.float64)) for value in (loss, slopes @ self.w, slopes.T @ self.x)
        ]

    def allowed_for_one(self, naive, truth, dtype, reduction):
        """The rule for a single number, whose error is luck: as if no token's error made up for another's."""
        errors = np.abs(naive.double().numpy() - self.losses).sum() / (self.counted.sum() if reduction == "mean" else 1)
        return BASELINE_FACTOR * float(errors) + FEW_ULP * torch.finfo(dtype).eps * truth.abs()


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


def findings(function, x, w, target, reductions):
    """What is wrong with a function of the loss, in words."""
    textbook = Textbook(x, w, target)
    for reduction in reductions:
        results, naive = (differentiated(f, x, w, target, x.dtype, reduction) for f in (function, eager))
        truth = textbook(reduction)
        for label, result, true, base in zip(("loss", "input_grad", "weight_grad"), results, truth, naive, strict=True):
            if result.dim():
                verdict = judge(result.cpu(), true, base.cpu(), x.dtype)
                if not verdict.ok:
                    yield f"{reduction}, {label}: {verdict}"
            else:
                by_token = F.cross_entropy(F.linear(x, w), target, reduction="none").cpu()
                allowed = textbook.allowed_for_one(by_token, true, x.dtype, reduction)
                error = abs(result.cpu().double() - true)
                if not error <= allowed:
                    yield f"{reduction}, {label}: error {error:.3g} (allowed {allowed:.3g})"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_head_is_as_close_as_eager_torch(case, dtype):
    for seed in range(1 if dtype == torch.float64 else 3):
        wrong = list(findings(ours, *drawn(case, dtype, seed), REDUCTIONS))
        assert not wrong, "\n".join(wrong)


def by_stages(backend):
    """The loss through the operators of the family on a backend of choice, as autograd would call them."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, target, together):
            if together:
                loss, *ctx.gradients = training.loss_and_gradients(x, w, target, reduction=together, backend=backend)
                return loss
            loss, *statistics = training.token_losses(x, w, target, backend=backend)
            ctx.gradients = None
            ctx.save_for_backward(x, w, target, *statistics)
            return loss

        @staticmethod
        def backward(ctx, grad):
            if ctx.gradients is not None:
                return *(gradient * grad.to(gradient.dtype) for gradient in ctx.gradients), None, None
            x, w, target, *statistics = ctx.saved_tensors
            return *training.token_gradients(grad, x, w, target, statistics, backend=backend), None, None

    return lambda x, w, target, reduction: Loss.apply(x, w, target, None if reduction == "none" else reduction)


ONE_OF_EACH = ("doubt 0.001", "deviation 8", "offset 1024", "lead 40")
THE_OTHERS = tuple(case for case in CASES if case not in ONE_OF_EACH)


@pytest.mark.gpu
@pytest.mark.interpreted(cases=[ONE_OF_EACH], dtype=DTYPES[:1], reduction=["sum"])
@pytest.mark.parametrize("reduction", ["sum", "none"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("cases", [ONE_OF_EACH, THE_OTHERS], ids=["one of each kind", "the others"])
def test_the_gpu_kernels_are_as_close_as_eager_torch(cases, dtype, reduction):
    """Many cases in a test: their sizes are the same, so kernels are compiled for them once."""
    wrong = []
    for case in cases:
        problem = (t.to("cuda" if GPU else "cpu") for t in drawn(case, dtype, seed=4))
        wrong += [f"{case}: {message}" for message in findings(by_stages("triton"), *problem, [reduction])]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_blocks_that_wait_and_those_that_do_not(dtype):
    """Tokens beyond the number of features have their logits computed again; all parts of a block have tops."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(1000, 32, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 1000, (120,), generator=generator)
    x = w[target] * 0.8
    assert not list(findings(by_stages("cpu"), x.to(dtype), w.to(dtype), target, ["sum"]))
