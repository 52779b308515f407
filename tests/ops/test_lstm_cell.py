"""What is peculiar to the LSTM cell: the proofs by autograd, the NaN rules, the bias gradient's accuracy."""

import pytest
import torch

import aclgrad
from aclgrad.ops.lstm_cell import reference

INPUTS = ("grad_hy", "grad_c", "cx", "cy", "storage")
OTHERS = (torch.float16, torch.bfloat16, torch.float64)


def inputs(n=6, h=4, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    states = [torch.randn(n, h).to(dtype) for _ in range(4)]
    return [*states, torch.rand(n, 4 * h).to(dtype)]


def products(n=6, h=4, dtype=torch.float32, bias=True, seed=0):
    torch.manual_seed(seed)
    gates = [torch.randn(n, 4 * h).to(dtype) for _ in range(2)]
    biases = [torch.randn(4 * h).to(dtype) if bias else None for _ in range(2)]
    return [*gates, torch.randn(n, h).to(dtype), *biases]


def test_the_formula_is_the_derivative_of_the_textbook_forward():
    input_gates, hidden_gates, cx, *biases = (t.requires_grad_() for t in products(5, 6, torch.float64))
    hy, cy, storage = reference.lstm_cell(input_gates, hidden_gates, cx, *biases)
    grad_hy, grad_c = torch.randn_like(hy), torch.randn_like(cy)
    leaves = (input_gates, hidden_gates, cx, *biases)
    for given in ((grad_hy, grad_c), (grad_hy, None), (None, grad_c)):
        pairs = [(out, grad) for out, grad in zip((hy, cy), given, strict=True) if grad is not None]
        outputs, gradients = zip(*pairs, strict=True)
        wanted = torch.autograd.grad(outputs, leaves, gradients, retain_graph=True)
        gates, grad_cx, bias = reference.lstm_cell_backward(*given, cx.detach(), cy.detach(), storage.detach(), True)
        for got, want in zip((gates, gates, grad_cx, bias, bias), wanted, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_forward_and_backward_are_autograds_of_pytorchs_cell(dtype, bias, backend):
    torch.manual_seed(1)
    cell = torch.nn.LSTMCell(5, 7, bias=bias, dtype=dtype)
    x, h, c = (torch.randn(3, n, dtype=dtype, requires_grad=True) for n in (5, 7, 7))
    hy, cy = cell(x, (h, c))
    grad_hy, grad_c = torch.randn_like(hy), torch.randn_like(cy)
    weights = list(cell.parameters())
    wanted = torch.autograd.grad((hy, cy), (x, h, c, *weights), (grad_hy, grad_c))
    with torch.no_grad():
        w_ih, w_hh, *biases = weights
        ours_hy, ours_cy, storage = aclgrad.lstm_cell(x @ w_ih.t(), h @ w_hh.t(), c, *biases, backend=backend)
        gates, grad_cx, grad_bias = aclgrad.lstm_cell_backward(
            grad_hy, grad_c, c, ours_cy, storage, bias, backend=backend
        )
        got = [gates @ w_ih, gates @ w_hh, grad_cx, gates.t() @ x, gates.t() @ h, *([grad_bias] * 2 if bias else [])]
    torch.testing.assert_close((ours_hy, ours_cy), (hy.detach(), cy.detach()))
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


class Cell(torch.autograd.Function):
    """The operators as autograd needs them, with the textbook where the gradient is itself recorded.

    `storage` is an output that has a gradient: the second derivative arrives there.
    """

    @staticmethod
    def forward(ctx, *given):
        hy, cy, storage = aclgrad.lstm_cell(*given, backend="cpu")
        ctx.save_for_backward(given[2], cy, storage)
        ctx.has_bias = len(given) > 3
        return hy, cy, storage

    @staticmethod
    def backward(ctx, grad_hy, grad_c, grad_storage):
        cx, cy, storage = ctx.saved_tensors
        recorded = torch.is_grad_enabled()
        gradient = reference.lstm_cell_backward if recorded else aclgrad.lstm_cell_backward
        gates, grad_cx, bias = gradient(grad_hy, grad_c, cx, cy, storage, ctx.has_bias)
        i, f, g, o = storage.chunk(4, dim=1)
        direct = grad_storage * torch.cat([i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)], dim=1)
        gates = gates + direct
        return gates, gates, grad_cx, *([bias + direct.sum(0)] * 2 if ctx.has_bias else [])


@pytest.mark.parametrize("bias", [True, False])
def test_derivatives_of_both_orders(bias):
    given = [t.requires_grad_() for t in products(3, 2, torch.float64, bias) if t is not None]
    states = lambda *leaves: Cell.apply(*leaves)[:2]  # noqa: E731
    assert torch.autograd.gradcheck(states, given)
    assert torch.autograd.gradgradcheck(states, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_gates_that_are_infinite_saturate_and_undefined_ones_spread(dtype, backend):
    h = 3
    args = products(4, h, dtype)
    hy, cy, storage = aclgrad.lstm_cell(*args, backend=backend)
    for gate, (high, low) in enumerate([(1, 0), (1, 0), (1, -1), (1, 0)]):
        column = gate * h + 1
        changed = [arg.clone() for arg in args]
        changed[0][0, column], changed[1][1, column], changed[0][2, column] = torch.inf, -torch.inf, torch.nan
        new_hy, new_cy, new_storage = aclgrad.lstm_cell(*changed, backend=backend)
        assert new_storage[0, column] == high and new_storage[1, column] == low and bool(new_storage[2, column].isnan())
        assert bool(new_hy[:2].isfinite().all()) and bool(new_cy[:2].isfinite().all())
        assert bool(new_hy[2, 1].isnan()) and bool(new_cy[2, 1].isnan()) == (gate != 3)
        for new, old in ((new_hy, hy), (new_cy, cy)):
            torch.testing.assert_close(new[:, [0, 2]], old[:, [0, 2]], rtol=0, atol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in OTHERS)])
def test_every_layout_gives_the_same_bits(dtype, bias):
    """Also where only some operands are odd, and where the outputs are."""
    layouts = (lambda t: t.t().contiguous().t(), lambda t: torch.stack([t, t], -1)[..., 0])
    args = products(33, 70, dtype, bias)
    expected = aclgrad.lstm_cell(*args, backend="cpu")
    for layout in layouts:
        odd = [arg if arg is None or arg.dim() == 1 else layout(arg) for arg in args]
        targets = tuple(layout(torch.empty_like(out)) for out in expected)
        for given, out in ((odd, None), ([odd[0], *args[1:]], None), (args, targets), (odd, targets)):
            for got, want in zip(aclgrad.lstm_cell(*given, out=out, backend="cpu"), expected, strict=True):
                assert torch.equal(got, want)


def test_views_of_one_buffer_are_inputs():
    """Both products and the state as slices of what larger computations left."""
    torch.manual_seed(2)
    both, states = torch.randn(2, 5, 28), torch.randn(9, 5, 7)
    got = aclgrad.lstm_cell(both[0], both[1], states[4], backend="cpu")
    want = aclgrad.lstm_cell(*(t.clone() for t in (both[0], both[1], states[4])), backend="cpu")
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_the_biases_are_added_one_after_the_other():
    """((input + hidden) + input bias) + hidden bias: other orders would lose what is left of the small one."""
    big, one = torch.full((1, 4), 2.0**24), torch.ones(4)
    _, _, storage = aclgrad.lstm_cell(big, -big, torch.zeros(1, 1), one * 0.5, one * 0.25, backend="cpu")
    torch.testing.assert_close(storage[0, :2], torch.sigmoid(torch.full((2,), 0.75)))


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
