"""What is peculiar to hardsigmoid: the proof by autograd, every mix of dtypes, PyTorch's own gradient."""

import itertools

import pytest
import torch

import aclgrad
from aclgrad.ops.hardsigmoid import reference
from aclgrad.testing import assert_within_baseline

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
MIXES = [
    *itertools.product(FLOATS[:3], repeat=3),  # the document's
    *itertools.permutations([torch.float64, torch.float32, torch.float16]),
    *itertools.permutations([torch.float64, torch.float64, torch.bfloat16]),
]


def test_the_formula_is_the_derivative_of_the_textbook_forward():
    x = (torch.randn(500, dtype=torch.float64) * 3).requires_grad_()
    grad = torch.randn_like(x)
    (expected,) = torch.autograd.grad(reference.hardsigmoid(x), x, grad)
    torch.testing.assert_close(reference.hardsigmoid_backward(grad, x.detach()), expected)


@pytest.mark.parametrize(("grad_dtype", "x_dtype", "out_dtype"), MIXES)
def test_every_mix_of_dtypes(grad_dtype, x_dtype, out_dtype):
    grad, x = torch.randn(3, 37).to(grad_dtype), (torch.randn(3, 37) * 3).to(x_dtype)
    out = torch.full((3, 37), torch.nan, dtype=out_dtype)
    assert aclgrad.hardsigmoid_backward(grad, x, out=out, backend="cpu") is out
    truth = reference.hardsigmoid_backward(grad.double(), x.double())
    compute = torch.float64 if torch.float64 in (grad_dtype, x_dtype) else torch.float32
    naive = reference.hardsigmoid_backward(grad.to(compute), x.to(compute)).to(out_dtype)
    assert_within_baseline(out, truth, naive)
    promoted = aclgrad.hardsigmoid_backward(grad, x, backend="cpu")
    assert promoted.dtype == torch.promote_types(grad_dtype, x_dtype)


@pytest.mark.parametrize("dtype", FLOATS[:3])  # aten multiplies float64 by a 1/6 rounded to float32
def test_equals_pytorchs_gradient(dtype):
    grad, x = torch.randn(4097).to(dtype), (torch.randn(4097) * 3).to(dtype)
    ours, theirs = aclgrad.hardsigmoid_backward(grad, x), torch.ops.aten.hardsigmoid_backward(grad, x)
    ulp = torch.finfo(dtype).eps * theirs.abs()
    assert bool(((ours.double() - theirs.double()).abs() <= ulp.double()).all())


def test_the_comparison_is_made_on_the_exact_value():
    """The largest float32 below 3 is inside, though x/6 + 1/2 rounds to 1 there."""
    three = torch.tensor(3.0)
    x = torch.stack([torch.nextafter(three, torch.zeros(())), three, torch.nextafter(three, three * 2)])
    x = torch.cat([x, -x])
    out = aclgrad.hardsigmoid_backward(torch.full_like(x, 6.0), x)
    assert out.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("view", [lambda t: t.expand(5, 7), lambda t: t[::2], lambda t: t.t(), lambda t: t[1:, 2:]])
def test_views_of_inputs(view):
    base_grad, base_x = torch.randn(1, 7) if view(torch.ones(1, 7)).shape == (5, 7) else torch.randn(10, 7), None
    base_x = torch.randn_like(base_grad) * 3
    grad, x = view(base_grad), view(base_x)
    expected = aclgrad.hardsigmoid_backward(grad.contiguous(), x.contiguous())
    assert torch.equal(aclgrad.hardsigmoid_backward(grad, x), expected)
    assert torch.equal(aclgrad.hardsigmoid_backward(grad, x.contiguous()), expected)


def test_in_place_over_either_input():
    grad, x = torch.randn(2000), torch.randn(2000) * 3
    expected = aclgrad.hardsigmoid_backward(grad, x)
    over_grad, over_x = grad.clone(), x.clone()
    aclgrad.hardsigmoid_backward(over_grad, x, out=over_grad)
    aclgrad.hardsigmoid_backward(grad, over_x, out=over_x)
    assert torch.equal(over_grad, expected) and torch.equal(over_x, expected)


def test_gradcheck_of_a_function_built_on_it():
    class Hardsigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.hardsigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            return aclgrad.hardsigmoid_backward(grad, *ctx.saved_tensors, backend="cpu")

    x = (torch.rand(20, dtype=torch.float64) * 5 - 2.5).requires_grad_()
    assert torch.autograd.gradcheck(Hardsigmoid.apply, x)


def test_result_keeps_the_inputs_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert aclgrad.hardsigmoid_backward(torch.randn(2, 3, 4, 5), x).stride() == x.stride()
