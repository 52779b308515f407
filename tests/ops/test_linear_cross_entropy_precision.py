"""The head's loss and gradients over a distribution of logits: no further from float64 than eager torch."""

import pytest
import torch
from tokens import CASES, check, differentiated, drawn, findings, ours

from aclgrad.ops.linear_cross_entropy import training

GPU = torch.cuda.is_available()
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
REDUCTIONS = ("mean", "sum", "none")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_head_is_as_close_as_eager_torch(case, dtype, reduction):
    for seed in range(1 if dtype == torch.float64 else 3):
        x, w, target = drawn(case, dtype, seed)
        check(differentiated(ours, x, w, target, dtype, reduction), x, w, target, reduction)


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
        x, w, target = (t.to("cuda" if GPU else "cpu") for t in drawn(case, dtype, seed=4))
        results = differentiated(by_stages("triton"), x, w, target, dtype, reduction)
        wrong += [f"{case}: {message}" for message in findings(results, x, w, target, reduction)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_blocks_that_wait_and_those_that_do_not(dtype):
    """Tokens beyond the number of features have their logits computed again; all parts of a block have tops."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(1000, 32, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 1000, (120,), generator=generator)
    x = w[target] * 0.8
    x, w = x.to(dtype), w.to(dtype)
    check(differentiated(by_stages("cpu"), x, w, target, dtype, "sum"), x, w, target, "sum")
