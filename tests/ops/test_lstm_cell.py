"""What is peculiar to the LSTM cell: the proof by autograd, the NaN rule, the bias gradient's accuracy."""

import pytest
import torch

import aclgrad
from aclgrad.ops.lstm_cell import reference

INPUTS = ("grad_hy", "grad_c", "cx", "cy", "storage")


def inputs(n=6, h=4, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    states = [torch.randn(n, h).to(dtype) for _ in range(4)]
    return [*states, torch.rand(n, 4 * h).to(dtype)]


def test_the_formula_is_the_derivative_of_the_textbook_forward():
    torch.manual_seed(0)
    gates = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)
    cx = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    hy, cy, storage = reference.lstm_cell(gates, cx)
    grad_hy, grad_c = torch.randn_like(hy), torch.randn_like(cy)
    for given in ((grad_hy, grad_c), (grad_hy, None), (None, grad_c)):
        pairs = [(out, grad) for out, grad in zip((hy, cy), given, strict=True) if grad is not None]
        want_gates, want_cx = torch.autograd.grad(
            [out for out, _ in pairs], (gates, cx), [grad for _, grad in pairs], retain_graph=True
        )
        got = reference.lstm_cell_backward(*given, cx.detach(), cy.detach(), storage.detach(), True)
        torch.testing.assert_close(got[0], want_gates)
        torch.testing.assert_close(got[1], want_cx)
        torch.testing.assert_close(got[2], want_gates.sum(0))


def test_equals_the_gradient_of_pytorchs_cell():
    torch.manual_seed(1)
    cell = torch.nn.LSTMCell(5, 7, dtype=torch.float64)
    x, h, c = (torch.randn(3, n, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
    hy, cy = cell(x, (h, c))
    grad_hy, grad_c = torch.randn_like(hy), torch.randn_like(cy)
    want_c, want_bias, want_w = torch.autograd.grad((hy, cy), (c, cell.bias_ih, cell.weight_ih), (grad_hy, grad_c))
    gates = x @ cell.weight_ih.t() + cell.bias_ih + h @ cell.weight_hh.t() + cell.bias_hh
    _, same_cy, storage = reference.lstm_cell(gates, c)
    torch.testing.assert_close(same_cy, cy)
    got_gates, got_c, got_bias = aclgrad.lstm_cell_backward(
        grad_hy, grad_c, c.detach(), cy.detach(), storage.detach(), True, backend="cpu"
    )
    torch.testing.assert_close(got_c, want_c)
    torch.testing.assert_close(got_bias, want_bias)
    torch.testing.assert_close(got_gates.t() @ x.detach(), want_w)


# Which outputs at (n, unit) depend on which input at (n, unit): blocks of grad_gates i f g o, then grad_cx.
DEPENDS = {
    "grad_hy": "ifgo c",
    "grad_c": "ifg c",
    "cx": "f",
    "cy": "ifgo c",
    "i": "ig",
    "f": "f c",
    "g": "ig",
    "o": "ifgo c",
}


@pytest.mark.parametrize("poison", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("name", DEPENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_depends_on_inf_or_nan_is_nan_and_nothing_else(name, poison, dtype, backend):
    n, h, row, unit = 6, 5, 2, 3
    args = inputs(n, h, dtype)
    clean = aclgrad.lstm_cell_backward(*args, True, backend=backend)
    if name in "ifgo":
        args[4][row, "ifgo".index(name) * h + unit] = poison
    else:
        args[INPUTS.index(name)][row, unit] = poison
    gates, grad_cx, bias = aclgrad.lstm_cell_backward(*args, True, backend=backend)
    want_gates, want_cx, want_bias = (t.clone() for t in clean)
    for k, block in enumerate("ifgo"):
        if block in DEPENDS[name]:
            want_gates[row, k * h + unit] = torch.nan
            want_bias[k * h + unit] = torch.nan
    if "c" in DEPENDS[name]:
        want_cx[row, unit] = torch.nan
    for got, want in ((gates, want_gates), (grad_cx, want_cx), (bias, want_bias)):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_finite_inputs_that_overflow_half_give_inf(backend):
    args = inputs(2, 3, torch.float16)
    args[1].fill_(60000.0)
    args[2].fill_(60000.0)
    gates, grad_cx, bias = aclgrad.lstm_cell_backward(*args, True, backend=backend)
    assert bool(gates[:, 3:6].isinf().all()) and not bool(gates.isnan().any())
    assert bool(bias[3:6].isinf().all())


def test_a_null_gradient_is_no_input():
    args = inputs()
    zeros = torch.zeros_like(args[0])
    for k in (0, 1):
        given = [*args, True]
        given[k] = None
        explicit = [*args, True]
        explicit[k] = zeros
        for got, want in zip(aclgrad.lstm_cell_backward(*given), aclgrad.lstm_cell_backward(*explicit), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_the_half_bias_gradient_sums_unrounded_gates():
    """A sum over rounded gates is several times further from the truth."""
    args = inputs(4096, 8, torch.float16, seed=3)
    gates, _, bias = aclgrad.lstm_cell_backward(*args, True, backend="cpu")
    truth = reference.lstm_cell_backward(*[t.double() for t in args], True)[2]
    ours = (bias.double() - truth).abs().max()
    assert ours <= torch.finfo(torch.float16).eps * truth.abs().max()
    assert ours <= (gates.sum(0).double() - truth).abs().max()


def test_many_rows_sum_as_accurately_as_pairwise():
    args = inputs(20_000, 3)
    bias = aclgrad.lstm_cell_backward(*args, True, backend="cpu")[2]
    truth = reference.lstm_cell_backward(*[t.double() for t in args], True)[2]
    magnitude = reference.lstm_cell_backward(*[t.double() for t in args], True)[0].abs().sum(0)
    assert bool(((bias.double() - truth).abs() <= 16 * 6e-8 * magnitude).all())
