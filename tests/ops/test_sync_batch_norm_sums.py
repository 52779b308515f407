"""What is peculiar to the sums over a batch: stable variances, dtypes of the results, flags, layouts, many threads."""

import itertools
from fractions import Fraction

import pytest
import torch

import aclgrad
from aclgrad.ops.sync_batch_norm import reference
from aclgrad.testing import assert_within_baseline

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def exact_moments(values):
    """Mean and variance in rational arithmetic."""
    numbers = [Fraction(value) for value in values.tolist()]
    mean = sum(numbers) / len(numbers)
    return mean, sum((number - mean) ** 2 for number in numbers) / len(numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_a_large_mean_does_not_hurt_the_variance(offset, dtype):
    """To a few ulp of the true value, where E[x²] − E[x]² in the same dtype would have no digit left."""
    torch.manual_seed(0)
    x = (torch.randn(40, 3, 7, dtype=torch.float64) + offset).to(dtype)
    x[0, 1, 0] = 100 * offset + 50  # the first element, which others are measured from, is an outlier
    mean, invstd = aclgrad.batch_norm_stats(x, 1e-5)
    eps = torch.finfo(dtype).eps
    for c in range(3):
        true_mean, variance = exact_moments(x[:, c].flatten())
        assert abs(float(mean[c]) - float(true_mean)) <= eps * abs(float(true_mean)) + 4 * eps
        expected = float(variance + Fraction(1e-5)) ** -0.5
        assert abs(float(invstd[c]) - expected) <= 4 * eps * expected


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(6, 4, 50), (40, 4, 16)], ids=str)
def test_nor_does_it_where_many_small_groups_are_united(shape, dtype):
    """On a GPU, or in Triton's interpreter: to about one ulp, however the groups' means are rounded."""
    pytest.importorskip("triton")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(5)
    means = torch.tensor([300.0, -500.0, 0.0, 1900.0], dtype=torch.float64)[:, None]
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) + means).to(dtype)
    _, invstd = aclgrad.batch_norm_stats(x.to(device), 1e-5, backend="triton")
    _, expected = reference.batch_norm_stats(x.double(), 1e-5)
    torch.testing.assert_close(invstd.cpu().double(), expected, rtol=2e-7, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(6, 4, 48), (40, 4, 16)], ids=str)
def test_nor_does_it_where_values_lie_a_few_ulp_apart(shape):
    """The mean of a group is then as coarse as its deviations; what it lacks is taken off their squares."""
    pytest.importorskip("triton")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(6)
    means = torch.tensor([4096.3, -5000.7, 20000.1, 1900.9], dtype=torch.float64)[:, None]
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) * 2e-3 + means).float()
    _, invstd = aclgrad.batch_norm_stats(x.to(device), 1e-12, backend="triton")
    _, expected = reference.batch_norm_stats(x.double(), 1e-12)
    torch.testing.assert_close(invstd.cpu().double(), expected, rtol=2e-7, atol=0)


@pytest.mark.parametrize("shape", [(4096, 3), (64, 5, 33, 17), (3, 70, 50, 20), (1, 2, 100_000)], ids=str)
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float64, pytest.param(torch.float16, marks=pytest.mark.slow)],
    ids=str,
)
def test_same_bits_for_every_layout_and_number_of_threads(shape, dtype):
    """Batches of many blocks and strips, in several layouts."""
    torch.manual_seed(1)
    grad, x = (torch.randn(shape).to(dtype) for _ in range(2))
    mean, invstd = torch.randn(shape[1]), torch.rand(shape[1])
    last = [tensor.movedim(1, -1).contiguous().movedim(-1, 1) for tensor in (grad, x)]
    reverse = [
        tensor.permute(*range(x.dim())[::-1]).contiguous().permute(*range(x.dim())[::-1]) for tensor in (grad, x)
    ]
    gaps = [torch.stack([tensor, tensor], -1)[..., 0] for tensor in (grad, x)]
    expected = None
    threads = torch.get_num_threads()
    try:
        for count, (g, values) in itertools.product((1, 3), ([grad, x], last, reverse, gaps, [grad, last[1]])):
            torch.set_num_threads(count)
            results = (
                *aclgrad.batch_norm_stats(values, 1e-5),
                *aclgrad.batch_norm_reduce_backward(g, values, mean, invstd, None, True, True, True),
            )
            expected = expected or results
            for result, want in zip(results, expected, strict=True):
                assert torch.equal(result, want)
    finally:
        torch.set_num_threads(threads)
    if dtype != torch.float64:  # whose own sums by torch are no better
        truth, naive = (reference.batch_norm_stats(values, 1e-5) for values in (x.double(), x))
        for result, true, base in zip(expected, truth, naive, strict=False):
            assert_within_baseline(result, true, base)


@pytest.mark.parametrize("flags", list(itertools.product([True, False], repeat=3)), ids=str)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_flags_choose_the_results(flags, backend):
    torch.manual_seed(2)
    args = (torch.randn(4, 3, 5), torch.randn(4, 3, 5), torch.randn(3), torch.rand(3), torch.rand(3))
    everything = aclgrad.batch_norm_reduce_backward(*args, True, True, True, backend=backend)
    results = aclgrad.batch_norm_reduce_backward(*args, *flags, backend=backend)
    asked = (flags[0], flags[0], flags[1], flags[2])
    for result, wanted, value in zip(results, asked, everything, strict=True):
        assert torch.equal(result, value) if wanted else result is None


@pytest.mark.parametrize(("x_dtype", "mean_dtype"), list(itertools.product(FLOATS, repeat=2)))
def test_results_are_half_only_if_the_input_and_the_mean_are(x_dtype, mean_dtype):
    x, mean = torch.randn(4, 3).to(x_dtype), torch.rand(3).to(mean_dtype)
    want = x_dtype if x_dtype == mean_dtype else torch.float32
    sums = aclgrad.batch_norm_reduce_backward(x, x, mean, mean, None, True, True, True)
    assert {result.dtype for result in sums} == {want}
    union = aclgrad.batch_norm_gather_stats_with_counts(
        x, mean[None], mean[None] + 1, None, None, 0.1, 0.0, torch.tensor([4.0])
    )
    assert {result.dtype for result in union} == {want}
    assert {result.dtype for result in aclgrad.batch_norm_stats(x, 1e-5)} == {torch.float32}


def test_results_go_where_they_are_told_in_the_dtype_found_there():
    torch.manual_seed(3)
    x, grad, mean, invstd = torch.randn(9, 4, 3), torch.randn(9, 4, 3), torch.randn(4), torch.rand(4)
    expected = aclgrad.batch_norm_reduce_backward(grad, x, mean, invstd, None, True, True, True)
    out = tuple(torch.zeros(8, dtype=dtype)[::2] for dtype in (*FLOATS, torch.float64))
    results = aclgrad.batch_norm_reduce_backward(grad, x, mean, invstd, None, True, True, True, out=out)
    for result, given, want in zip(results, out, expected, strict=True):
        assert result is given
        torch.testing.assert_close(result, want.to(given.dtype), rtol=torch.finfo(given.dtype).eps, atol=1e-5)


@pytest.mark.parametrize(
    "counts", [torch.tensor([3, 5]), torch.tensor([3, 5], dtype=torch.uint8), [3.0, 0, 5.0, 0]], ids=str
)
def test_counts_of_any_kind(counts):
    torch.manual_seed(4)
    x, mean, invstd = torch.randn(2, 4), torch.randn(2, 4), torch.rand(2, 4) + 0.5
    expected = aclgrad.batch_norm_gather_stats_with_counts(
        x, mean, invstd, None, None, 0.1, 1e-5, torch.tensor([3.0, 5])
    )
    given = torch.tensor(counts)[::2] if isinstance(counts, list) else counts
    for result, want in zip(
        aclgrad.batch_norm_gather_stats_with_counts(x, mean, invstd, None, None, 0.1, 1e-5, given),
        expected,
        strict=True,
    ):
        assert torch.equal(result, want)


def test_the_input_of_the_union_lends_its_channels_and_dtype_alone():
    """It may even be empty, or NaN."""
    args = (torch.rand(2, 3), torch.rand(2, 3) + 1, None, None, 0.1, 1e-5, torch.tensor([3.0, 5.0]))
    expected = aclgrad.batch_norm_gather_stats_with_counts(torch.randn(4, 3), *args)
    for other in (torch.zeros(0, 3, 7), torch.full((2, 3), torch.nan)):
        for result, want in zip(aclgrad.batch_norm_gather_stats_with_counts(other, *args), expected, strict=True):
            assert torch.equal(result, want)
