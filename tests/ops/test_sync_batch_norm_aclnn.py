"""What the aclnn door does with flags, null outputs, formats and chips; and the element-wise forward pass."""

import itertools

import pytest
import torch
from mixes import mixes

import aclgrad
from aclgrad import acl, aclnn
from aclgrad.ops.sync_batch_norm import reference
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.program import program

NULL, INVALID = 161001, 161002
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def run(name, *arguments):
    """The status of the first phase, or of the second if the first succeeds."""
    size, executor, status = getattr(aclnn, f"{name}GetWorkspaceSize")(*arguments)
    if status:
        return status
    return getattr(aclnn, name)(torch.empty(size, dtype=torch.uint8) if size else None, size, executor, None)


@pytest.mark.parametrize("flags", list(itertools.product([True, False], repeat=3)), ids=str)
def test_sums_that_are_not_asked_for_may_be_null_and_are_not_written(flags):
    torch.manual_seed(0)
    args = (torch.randn(4, 3, 5), torch.randn(4, 3, 5), torch.randn(3), torch.rand(3), None, *flags)
    expected = aclgrad.batch_norm_reduce_backward(*args)
    asked = (flags[0], flags[0], flags[1], flags[2])
    for spare in (None, torch.full((7,), 9.0)):  # of any shape, since nobody looks at it
        outs = [torch.zeros(3) if wanted else spare for wanted in asked]
        assert run("aclnnBatchNormReduceBackward", *args, *outs) == 0, acl.get_recent_err_msg()
        for out, wanted, want in zip(outs, asked, expected, strict=True):
            assert torch.equal(out, want) if wanted else spare is None or bool((spare == 9).all())
    for k, wanted in enumerate(asked):
        outs = [None if index == k else torch.zeros(3) for index in range(4)]
        assert run("aclnnBatchNormReduceBackward", *args, *outs) == (NULL if wanted else 0)


def test_running_statistics_are_updated_in_place():
    torch.manual_seed(1)
    x, mean, invstd = torch.randn(2, 3), torch.randn(4, 3), torch.rand(4, 3) + 0.5
    running, counts = [torch.randn(3), torch.rand(3)], torch.tensor([5.0, 6, 7, 8])
    expected = reference.batch_norm_gather_stats_with_counts(
        *[t.double() for t in (x, mean, invstd, *running)], 0.1, 1e-5, counts.double()
    )
    outs = [torch.zeros(3), torch.zeros(3)]
    assert run("aclnnBatchNormGatherStatsWithCounts", x, mean, invstd, *running, 0.1, 1e-5, counts, *outs) == 0
    for result, want in zip((*outs, *running), expected, strict=True):
        torch.testing.assert_close(result, want.float())
    alone = (x, mean, invstd, running[0], None, 0.1, 1e-5, counts)
    assert run("aclnnBatchNormGatherStatsWithCounts", *alone, *outs) == NULL
    assert "runningVar" in acl.get_recent_err_msg()


@pytest.mark.parametrize(("soc", "status"), [("Ascend950", 0), ("Ascend910B", INVALID), ("Ascend310P", INVALID)])
def test_bfloat16_statistics_need_an_ascend950(soc, status, monkeypatch):
    monkeypatch.setenv("ACLGRAD_SOC", soc)
    x, outs = torch.randn(4, 3).bfloat16(), [torch.zeros(3), torch.zeros(3)]
    assert run("aclnnBatchNormStats", x, 1e-5, *outs) == status
    if status == 0:
        torch.testing.assert_close(tuple(outs), aclgrad.batch_norm_stats(x, 1e-5))


@pytest.mark.parametrize("operator", ["aclnnBatchNormElemt", "aclnnBatchNormReduceBackward"])
def test_both_batches_have_one_format(operator):
    vectors = [torch.rand(3) for _ in range(2)]
    with program() as running:

        def batch(format):
            handle = running.upload(torch.randn(2, 3, 4, 5))
            address = aclnn.aclGetRawTensorAddr(handle)[0]
            shape = [2, 3, 4, 5]
            return aclnn.aclCreateTensor(shape, 4, aclnn.ACL_FLOAT, None, 0, format, shape, 4, address)

        for first, second, expected in [(0, 0, 0), (2, 2, 0), (2, 0, INVALID), (29, 29, INVALID)]:
            if operator == "aclnnBatchNormElemt":
                arguments = (batch(first), None, None, *map(running.upload, vectors), 1e-5, batch(second))
            else:
                outs = [running.upload(torch.zeros(3)) for _ in range(4)]
                batches = (batch(first), batch(second))
                arguments = (*batches, *map(running.upload, vectors), None, True, True, True, *outs)
            _, executor, status = getattr(aclnn, f"{operator}GetWorkspaceSize")(*arguments)
            assert status == expected, (first, second, acl.get_recent_err_msg())
            if expected:
                assert "format" in acl.get_recent_err_msg()
            else:
                aclnn.aclDestroyAclOpExecutor(executor)


@pytest.mark.parametrize(("x_dtype", "vector_dtype", "out_dtype"), mixes(FLOATS))
def test_normalisation_in_every_mix_of_dtypes(x_dtype, vector_dtype, out_dtype):
    torch.manual_seed(2)
    x = torch.randn(3, 5, 11).to(x_dtype)
    weight, bias, mean, invstd = (torch.rand(5).to(vector_dtype) + 0.5 for _ in range(4))
    out = torch.full_like(x, torch.nan, dtype=out_dtype)
    aclgrad.batch_norm_elemt(x, weight, bias, mean, invstd, 1e-5, out=out, backend="cpu")
    args = (x, weight, bias, mean, invstd)
    truth, naive = (reference.batch_norm_elemt(*[t.to(d) for t in args], 1e-5) for d in (torch.float64, torch.float32))
    assert_within_baseline(out, truth, naive.to(out_dtype))


def test_normalisation_may_be_written_over_the_input_and_keeps_its_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    vectors = [torch.rand(3) for _ in range(4)]
    expected = aclgrad.batch_norm_elemt(x, *vectors, 1e-5)
    assert expected.is_contiguous(memory_format=torch.channels_last)
    assert aclgrad.batch_norm_elemt(x, *vectors, 1e-5, out=x) is x
    assert torch.equal(x, expected)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 3.0, float("nan")])
def test_normalisation_knows_eps_from_the_statistics_alone(eps):
    x, vectors = torch.randn(4, 3), [torch.rand(3) for _ in range(4)]
    assert torch.equal(aclgrad.batch_norm_elemt(x, *vectors, eps), aclgrad.batch_norm_elemt(x, *vectors, 1e-5))
