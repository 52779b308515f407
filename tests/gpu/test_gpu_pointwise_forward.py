"""hardsigmoid and the LSTM cell at sizes and places that only a GPU makes interesting."""

import pytest
import torch
from test_gpu_pointwise import DTYPES, check, needs, shifted

import aclgrad
from aclgrad.core.spec import F16, I32
from aclgrad.ops.hardsigmoid import reference as hardsigmoid
from aclgrad.ops.lstm_cell import reference as lstm_cell
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.poison import fill


def turned(tensor):
    return tensor.t().contiguous().t()


def cell_args(dtype, rows, columns, bias=True):
    products = [torch.randn(rows, 4 * columns).to(dtype) for _ in range(2)]
    biases = [torch.randn(4 * columns).to(dtype) if bias else None for _ in range(2)]
    return *products, torch.randn(rows, columns).to(dtype), *biases


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 15, 1023, 1024, 1025, 100_003, (1 << 24) + 5])
def test_hardsigmoid_of_every_length(count, dtype, cuda):
    x = (3 * torch.randn(count)).to(dtype)
    result = aclgrad.hardsigmoid(x)
    check(result, hardsigmoid.hardsigmoid, (x,))
    assert torch.equal(aclgrad.hardsigmoid(shifted(x), out=fill(shifted(x, 3))), result)
    assert torch.equal(aclgrad.hardsigmoid_(shifted(x)), result)
    assert torch.equal(aclgrad.hardsigmoid_(x), result)


@pytest.mark.parametrize("dtype", [*DTYPES, I32])
def test_hardsigmoid_of_crossed_layouts(dtype, cuda):
    x = (3 * torch.randn(5, 333, 77)).to(dtype)
    expected = aclgrad.hardsigmoid(x)
    for order in ((0, 2, 1), (1, 2, 0), (2, 1, 0)):
        back = [order.index(d) for d in range(3)]
        other = x.permute(order).contiguous().permute(back)
        assert torch.equal(aclgrad.hardsigmoid(other, out=torch.empty_like(x)), expected)
        assert torch.equal(aclgrad.hardsigmoid_(other), expected)


def test_hardsigmoid_of_integers_and_undefined_numbers(cuda):
    ends = torch.iinfo(I32)
    whole = torch.tensor([*range(-9, 10), ends.min, ends.max], dtype=I32)
    assert torch.equal(aclgrad.hardsigmoid(whole), (whole >= 3).int())
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 3.0, -3.0])
    torch.testing.assert_close(aclgrad.hardsigmoid(x), torch.nn.functional.hardsigmoid(x), equal_nan=True)


def test_hardsigmoid_in_place_of_more_than_two_to_the_31(cuda):
    needs(10)
    x = (3 * torch.randn(1 << 20, dtype=F16)).repeat(2049)[: 2**31 + 7]
    expected = aclgrad.hardsigmoid(x[: 1 << 20])
    aclgrad.hardsigmoid_(x)
    whole = x[: 2047 << 20].view(-1, 1 << 20)
    assert bool((whole == expected).all()) and torch.equal(x[2048 << 20 :], expected[:7])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "size", [(1, 1), (64, 512), (129, 257), (1000, 1000), (8192, 40), (5, 4099), (1, 70_001), (70_001, 1)]
)
def test_cell_of_every_size(size, dtype, bias, cuda):
    args = cell_args(dtype, *size, bias)
    check(aclgrad.lstm_cell(*args), lstm_cell.lstm_cell, args)
    for lay in (shifted, turned):
        odd = [arg if arg is None or arg.dim() == 1 else lay(arg) for arg in args]
        out = tuple(lay(fill(torch.empty_like(result))) for result in aclgrad.lstm_cell(*args))
        check(aclgrad.lstm_cell(*odd), lstm_cell.lstm_cell, args)
        check(aclgrad.lstm_cell(*odd, out=out), lstm_cell.lstm_cell, args)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cell_forward_feeds_its_backward(dtype, cuda):
    """Through both as close to the truth as the operators of PyTorch's own cell."""
    args = cell_args(dtype, 300, 520)
    grads = [torch.randn(300, 520).to(dtype) for _ in range(2)]

    def chain(forward, backward, args, grads):
        hy, cy, storage = forward(*args)
        return hy, cy, storage, *backward(*grads, args[2], cy, storage, False)[:2]

    ours = chain(aclgrad.lstm_cell, aclgrad.lstm_cell_backward, args, grads)
    aten = torch.ops.aten
    theirs = chain(aten._thnn_fused_lstm_cell, aten._thnn_fused_lstm_cell_backward_impl, args, grads)
    wide = [[tensor.double() for tensor in tensors] for tensors in (args, grads)]
    truth = chain(lstm_cell.lstm_cell, lstm_cell.lstm_cell_backward, *wide)
    for result, true, base in zip(ours, truth, theirs, strict=True):
        assert_within_baseline(result, true, base)


def test_cell_of_more_than_two_to_the_31_gates(cuda):
    needs(40)
    rows, columns = 2**19 + 3, 1024
    small = cell_args(F16, 515, columns)
    args = [*(t.repeat(1019, 1)[:rows] for t in small[:3]), *small[3:]]
    results, expected = aclgrad.lstm_cell(*args), aclgrad.lstm_cell(*small)
    for result, want in zip(results, expected, strict=True):
        for start in (0, 515 * 500, 515 * 1017):
            assert torch.equal(result[start : start + 515], want)
