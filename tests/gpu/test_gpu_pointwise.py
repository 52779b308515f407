"""The pointwise families at sizes and places that only a GPU makes interesting."""

import pytest
import torch
from gpu_calls import begun_late as shifted
from matrix import flat

import aclgrad
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.hardsigmoid import reference as hardsigmoid
from aclgrad.ops.lstm_cell import reference as lstm_cell
from aclgrad.ops.sync_batch_norm import reference as sync_batch_norm
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.poison import fill

DTYPES = (F32, F16, BF16)
GIBI = 1 << 30


def needs(gigabytes):
    """Skip where the device has less memory free."""
    if torch.cuda.mem_get_info()[0] < gigabytes * GIBI:
        pytest.skip(f"needs {gigabytes} GiB of device memory")


def check(results, reference, args):
    """Every result against float64, in the light of a naive run in its dtype."""
    wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
    naive = [arg.to(args[0].dtype) if isinstance(arg, torch.Tensor) else arg for arg in args]
    for result, true, base in zip(flat(results), flat(reference(*wide)), flat(reference(*naive)), strict=True):
        assert_within_baseline(result, true, base)


def hardsigmoid_args(dtype, *shape):
    return torch.randn(shape).to(dtype), (3 * torch.randn(shape)).to(dtype)


def batch_args(dtype, *shape):
    channels = shape[1]
    count = max(1, torch.Size(shape).numel() // channels)
    vectors = [torch.randn(channels), torch.rand(channels) + 0.3, torch.randn(channels)]
    sums = [count * torch.randn(channels) for _ in range(2)]
    counter = torch.tensor([count, count], dtype=torch.int32)
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), *vectors, *sums, counter


def cell_args(dtype, rows, columns):
    storage = torch.rand(rows, 4 * columns)
    storage[:, 2 * columns : 3 * columns] *= -1
    return *(torch.randn(rows, columns).to(dtype) for _ in range(4)), storage.to(dtype), True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 15, 1023, 1024, 1025, 100_003, (1 << 24) + 5])
def test_hardsigmoid_of_every_length(count, dtype, cuda):
    args = hardsigmoid_args(dtype, count)
    check(aclgrad.hardsigmoid_backward(*args), hardsigmoid.hardsigmoid_backward, args)
    moved = [shifted(arg) for arg in args]
    out = fill(shifted(args[0], 3))
    assert torch.equal(aclgrad.hardsigmoid_backward(*moved, out=out), aclgrad.hardsigmoid_backward(*args))


@pytest.mark.parametrize("dtype", DTYPES)
def test_hardsigmoid_of_crossed_layouts(dtype, cuda):
    grad, x = hardsigmoid_args(dtype, 5, 333, 77)
    expected = aclgrad.hardsigmoid_backward(grad, x)
    for order in ((0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0)):
        back = [order.index(d) for d in range(3)]
        turned = x.permute(order).contiguous().permute(back)
        assert torch.equal(aclgrad.hardsigmoid_backward(grad, turned), expected)


def test_hardsigmoid_of_more_than_two_to_the_31(cuda):
    needs(14)
    count = 2**31 + 7
    grad = torch.randn(1 << 20, dtype=F16).repeat(2049)[:count]
    x = (3 * torch.randn((1 << 20) + 1, dtype=F16)).repeat(2049)[:count]
    out = torch.full((count,), torch.nan, dtype=F16)
    aclgrad.hardsigmoid_backward(grad, x, out=out)
    for piece in range(0, count, 1 << 28):
        here = slice(piece, piece + (1 << 28))
        expected = hardsigmoid.hardsigmoid_backward(grad[here].float(), x[here].float()).half()
        assert torch.equal(out[here], expected)


def test_strided_hardsigmoid_beyond_two_to_the_31(cuda):
    """Few elements far apart, and many elements along two loops."""
    needs(14)
    room = torch.zeros(2**31 + 2**20, dtype=F16)
    far = room.as_strided((5, 1000), (2**29, 3))
    grad, x = hardsigmoid_args(F16, 5, 1000)
    far.copy_(x)
    assert torch.equal(aclgrad.hardsigmoid_backward(grad, far), aclgrad.hardsigmoid_backward(grad, x))
    del far
    wide = room.view(-1, 2**16)[:, :-1]
    wide.copy_(torch.linspace(-4, 4, 2**16 - 1, dtype=F16))
    ones = torch.ones(1, dtype=F16).expand(wide.shape)
    out = torch.empty_like(wide)
    aclgrad.hardsigmoid_backward(ones, wide, out=out)
    row = aclgrad.hardsigmoid_backward(ones[0], wide[0].contiguous())
    assert bool((out == row).all(dim=1).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "shape", [(3, 17, 7, 5), (9, 64, 7, 7), (70, 2048, 7, 7), (5, 3, 211, 1), (2, 1000, 14, 14), (1, 5, 1, 1)]
)
def test_batch_norm_of_every_shape(shape, last, dtype, cuda):
    grad, x, *rest = batch_args(dtype, *shape)
    if last:
        grad, x = (t.contiguous(memory_format=torch.channels_last) for t in (grad, x))
    result = aclgrad.batch_norm_elemt_backward(grad, x, *rest)
    assert result.stride() == x.stride()
    check(result, sync_batch_norm.batch_norm_elemt_backward, (grad, x, *rest))
    crossed = aclgrad.batch_norm_elemt_backward(grad.contiguous(), x, *rest)
    assert torch.equal(crossed, result)
    assert torch.equal(aclgrad.batch_norm_elemt_backward(shifted(grad.contiguous()), x, *rest), result)


def test_batch_norm_of_more_than_two_to_the_31(cuda):
    needs(14)
    small = batch_args(F16, 33, 16, 64, 64)
    grad, x = (t.repeat(993, 1, 1, 1) for t in small[:2])
    out = torch.full_like(x, torch.nan)
    assert out.numel() > 2**31
    aclgrad.batch_norm_elemt_backward(grad, x, *small[2:], out=out)
    expected = aclgrad.batch_norm_elemt_backward(*small)
    assert torch.equal(out[:33], expected)
    assert torch.equal(out[-33:], expected)


@pytest.mark.parametrize("count", [0, 1, 7, 1024, 1025, 5000])
def test_batch_norm_adds_up_counters_of_every_length(count, cuda):
    grad, x, *rest, _ = batch_args(F32, 4, 6, 5)
    counter = torch.arange(2 * count, dtype=torch.int32)[::2]
    total = counter.sum(dtype=torch.float64).view(1).float()
    expected = aclgrad.batch_norm_elemt_backward(grad, x, *rest, total)
    result = aclgrad.batch_norm_elemt_backward(grad, x, *rest, counter)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "size", [(1, 1), (64, 512), (128, 96), (129, 257), (1000, 1000), (8192, 40), (5, 4099), (3001, 256)]
)
def test_cell_of_every_size(size, dtype, cuda):
    args = cell_args(dtype, *size)
    results = aclgrad.lstm_cell_backward(*args)
    check(results, lstm_cell.lstm_cell_backward, args)
    for elsewhere in ([shifted(arg) for arg in args[:5]], [arg.t().contiguous().t() for arg in args[:5]]):
        check(aclgrad.lstm_cell_backward(*elsewhere, True), lstm_cell.lstm_cell_backward, args)


def test_cell_of_more_than_two_to_the_31_gates(cuda):
    needs(20)
    rows, columns = 2**19 + 3, 1024
    small = cell_args(F16, 515, columns)
    *states, storage = (t.repeat(1019, 1)[:rows] for t in small[:5])
    gates, cx, _ = aclgrad.lstm_cell_backward(*states, storage, False)
    expected_gates, expected_cx, _ = aclgrad.lstm_cell_backward(*small[:5], False)
    for start in (0, 515 * 500, 515 * 1017):
        assert torch.equal(gates[start : start + 515], expected_gates)
        assert torch.equal(cx[start : start + 515], expected_cx)
