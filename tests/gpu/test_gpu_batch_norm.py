"""Sums over the channels of a batch at sizes, shapes and places that only a GPU makes interesting."""

import pytest
import torch
from test_gpu_pointwise import needs, shifted

import aclgrad
from aclgrad.core.spec import F16, F32
from aclgrad.ops.sync_batch_norm import spec
from aclgrad.testing import verdicts

DTYPES = (F32, F16)


def check(operator, args):
    """Every result against float64, in the light of a naive run; and the same bits again."""
    results, again = operator(*args, backend="triton"), operator(*args, backend="triton")
    for name, verdict in verdicts(operator.spec, args, results, args[0].dtype):
        assert verdict.ok, f"{name}: {verdict}"
    for result, repeated in zip(results, again, strict=True):
        assert torch.equal(result, repeated)


def last(tensor):
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


LAYOUTS = {
    "NCHW": lambda t: t,
    "NHWC": last,
    "misaligned": shifted,
    "sliced": lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
    "gaps": lambda t: torch.stack([t, t], -1)[..., 0],
}


STATISTICS = [
    ((3, 17, 7, 5), "NCHW"), ((3, 17, 7, 5), "gaps"), ((70, 2048, 7, 7), "NCHW"), ((70, 2048, 7, 7), "NHWC"),
    ((2, 1000, 14, 14), "misaligned"), ((1, 6, 301, 333), "NCHW"), ((4, 33, 40, 40), "sliced"),
    ((5, 3, 211, 1), "NHWC"), ((2049, 130), "NCHW"), ((100_003, 3), "NCHW"), ((1, 4), "NCHW"),
    ((33, 1, 5, 5), "NCHW"), ((4, 2, 3, 4, 5, 6), "sliced"),
]  # fmt: skip

SUMS = [
    ((3, 17, 7, 5), ("sliced", "gaps")), ((70, 2048, 7, 7), ("NCHW", "NCHW")), ((70, 2048, 7, 7), ("NHWC", "NHWC")),
    ((2, 1000, 14, 14), ("NCHW", "NHWC")), ((1, 6, 301, 333), ("NCHW", "NCHW")), ((4, 33, 40, 40), ("NHWC", "NCHW")),
    ((2049, 130), ("misaligned", "NCHW")), ((100_003, 3), ("NCHW", "NCHW")), ((33, 1, 5, 5), ("NCHW", "gaps")),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "layout"), STATISTICS, ids=str)
def test_statistics_of_every_shape(shape, layout, dtype, cuda):
    check(spec.batch_norm_stats, (LAYOUTS[layout]((2 * torch.randn(shape) + 0.5).to(dtype)), 1e-5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "layouts"), SUMS, ids=str)
def test_sums_of_every_shape(shape, layouts, dtype, cuda):
    """The gradients are not around 0, nor is the mean that of x: a single sum that cancels out is no measure."""
    grad, x = (LAYOUTS[layout]((torch.randn(shape) + 1).to(dtype)) for layout in layouts)
    vectors = (torch.rand(shape[1]) + 3, torch.rand(shape[1]), None)
    check(spec.batch_norm_reduce_backward, (grad, x, *vectors, True, True, True))


@pytest.mark.parametrize("last_channel", [False, True], ids=["NCHW", "NHWC"])
def test_a_large_mean_does_not_hurt_the_variance(last_channel, cuda):
    x = torch.randn(64, 40, 28, 28) + 1000 * torch.randn(40)[:, None, None]
    check(spec.batch_norm_stats, (last(x) if last_channel else x, 1e-5))


def test_more_than_two_to_the_31(cuda):
    """A batch that repeats itself has the statistics of what it repeats, and sums as many times as large."""
    needs(14)
    small = torch.randn(33, 16, 64, 64, dtype=F16)
    for layout in (LAYOUTS["NCHW"], last):
        large = layout(small.repeat(993, 1, 1, 1))
        assert large.numel() > 2**31
        torch.testing.assert_close(aclgrad.batch_norm_stats(large, 1e-5), aclgrad.batch_norm_stats(small, 1e-5))
        mean, invstd = torch.randn(16), torch.rand(16)
        sums, parts = (
            aclgrad.batch_norm_reduce_backward(x, x, mean, invstd, None, True, True, True) for x in (large, small)
        )
        for result, part in zip(sums, parts, strict=True):
            torch.testing.assert_close(result, 993 * part, rtol=1e-4, atol=10)
