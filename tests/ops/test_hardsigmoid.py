"""What is peculiar to hardsigmoid: the proofs by autograd, every mix of dtypes, PyTorch's own operators."""

import itertools

import pytest
import torch
from mixes import mixes

import aclgrad
from aclgrad import aclnn
from aclgrad.ops.hardsigmoid import reference
from aclgrad.testing import assert_within_baseline

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WIDER = [
    *itertools.permutations([torch.float64, torch.float32, torch.float16]),
    *itertools.permutations([torch.float64, torch.float64, torch.bfloat16]),
]
MIXES = [
    *mixes(FLOATS[:3]),  # the document's
    (torch.float64, torch.float32, torch.float16),
    *(pytest.param(*mix, marks=pytest.mark.slow) for mix in WIDER),
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


@pytest.mark.parametrize("dtype", FLOATS)
def test_equals_pytorchs_hardsigmoid(dtype):
    special = [torch.nan, torch.inf, -torch.inf, 3.0, -3.0, 2.9999998, -2.9999998, 0.0]
    x = torch.cat([torch.randn(4097) * 3, torch.tensor(special)]).to(dtype)
    ours, theirs = aclgrad.hardsigmoid(x, backend="cpu"), torch.nn.functional.hardsigmoid(x)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=torch.finfo(dtype).eps, equal_nan=True)
    assert bool(ours[-8].isnan()) and ours[-7:-3].tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        *itertools.product(("cpu", "reference"), FLOATS),
        *(pytest.param("triton", dtype, marks=pytest.mark.gpu) for dtype in FLOATS[:3]),
    ],
)
def test_small_values_are_right_to_the_last_digit(backend, dtype):
    """Just above -3 the value is a small difference, in which an error of x/6 or of 1/2 would be a large one."""
    spacing = 2 * torch.finfo(dtype).eps  # of numbers between 2 and 4
    x = (torch.tensor([0, 1, 2, 3, 7, 50], dtype=torch.float64) * spacing - 3).to(dtype)
    exact = (x.double() + 3) / 6  # the sum has no rounding error
    ends = torch.tensor([3.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    place = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    values = aclgrad.hardsigmoid(torch.cat([x, ends]).to(place), backend=backend).cpu().double()
    assert bool(((values[:6] - exact).abs() <= torch.finfo(dtype).eps * exact).all()), values[:6] / exact
    assert values[6:9].tolist() == [1.0, 1.0, 0.0] and bool(values[9].isnan())


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_integers_are_computed_in_float32_and_cut_off(backend):
    ends = torch.iinfo(torch.int32)
    x = torch.tensor([*range(-50, 50), ends.min, ends.min + 1, ends.max - 1, ends.max], dtype=torch.int32)
    expected = (x.float() * (1 / 6) + 0.5).clamp(0, 1).int()
    assert torch.equal(aclgrad.hardsigmoid(x, backend=backend), expected)
    assert torch.equal(expected, (x >= 3).int())


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32])
@pytest.mark.parametrize(
    "view", [lambda t: t, lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:, 3:], lambda t: t[0, 0]]
)
def test_in_place_changes_the_view_and_nothing_beside_it(view, dtype):
    base = (torch.randn(64, 33) * 3).to(dtype)
    expected = base.clone()
    view(expected).copy_(aclgrad.hardsigmoid(view(base), backend="cpu"))
    x = view(base)
    assert aclgrad.hardsigmoid_(x, backend="cpu") is x
    assert torch.equal(base, expected)


def test_in_place_refuses_elements_that_share_memory():
    with pytest.raises(aclgrad.InvalidArgument, match="share memory"):
        aclgrad.hardsigmoid_(torch.zeros(1).expand(4))


def test_over_its_own_argument():
    x = torch.randn(2000) * 3
    expected = aclgrad.hardsigmoid(x)
    assert torch.equal(aclgrad.hardsigmoid(x, out=x), expected)


def test_handles_of_two_formats_are_refused():
    plain, other = (aclnn.aclCreateTensor([4], 1, 0, None, 0, layout, [4], 1, 0x1000) for layout in (2, 0))
    assert aclnn.aclnnHardsigmoidGetWorkspaceSize(plain, other)[2] == 161002
    assert "format" in aclgrad.acl.get_recent_err_msg()
    for handle in (plain, other):
        aclnn.aclDestroyTensor(handle)


def test_forward_and_backward_are_autograds_of_pytorch():
    x = (torch.randn(3, 500) * 3).requires_grad_()
    grad = torch.randn(3, 500)
    value = torch.nn.functional.hardsigmoid(x)
    (expected,) = torch.autograd.grad(value, x, grad)
    torch.testing.assert_close(aclgrad.hardsigmoid(x.detach()), value.detach())
    torch.testing.assert_close(aclgrad.hardsigmoid_backward(grad, x.detach()), expected)


@pytest.mark.parametrize("dtype", FLOATS[:3])  # aten multiplies float64 by a 1/6 rounded to float32
def test_equals_pytorchs_gradient(dtype):
    grad, x = torch.randn(4097).to(dtype), (torch.randn(4097) * 3).to(dtype)
    ours, theirs = aclgrad.hardsigmoid_backward(grad, x), torch.ops.aten.hardsigmoid_backward(grad, x)
    ulp = torch.finfo(dtype).eps * theirs.abs()
    assert bool(((ours.double() - theirs.double()).abs() <= ulp.double()).all())


def test_the_comparison_is_made_on_the_exact_value():
    """The largest float32 below 3 is inside, though (x + 3)/6 rounds to 1 there."""
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


class Hardsigmoid(torch.autograd.Function):
    """The operators as autograd needs them; the gradient is computed by the textbook where it is itself recorded."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return aclgrad.hardsigmoid(x, backend="cpu")

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return reference.hardsigmoid_backward(grad, x)
        return aclgrad.hardsigmoid_backward(grad, x, backend="cpu")


def test_derivatives_of_both_orders():
    x = (torch.randn(40, dtype=torch.float64) * 3).requires_grad_()
    assert torch.autograd.gradcheck(Hardsigmoid.apply, x)
    assert torch.autograd.gradgradcheck(Hardsigmoid.apply, x)


def test_the_gradients_gradient_is_itself():
    grad, x = (torch.randn(500, dtype=torch.float64, requires_grad=True) for _ in range(2))
    direction = torch.randn_like(grad)
    (second,) = torch.autograd.grad(reference.hardsigmoid_backward(grad, 3 * x), grad, direction)
    torch.testing.assert_close(second, aclgrad.hardsigmoid_backward(direction, 3 * x.detach(), backend="cpu"))


def test_result_keeps_the_inputs_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert aclgrad.hardsigmoid_backward(torch.randn(2, 3, 4, 5), x).stride() == x.stride()
    assert aclgrad.hardsigmoid(x).stride() == x.stride()
