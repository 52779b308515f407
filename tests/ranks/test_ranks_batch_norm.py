"""SyncBatchNorm over the ranks of a real group: what torch's own tests promise of its module, on CPUs."""

import norm_checks
import pytest
import torch

GATHER = "all_gather_single" if hasattr(torch.distributed, "all_gather_single") else "all_gather_into_tensor"


def test_equal_to_the_whole_batch(ranks):
    for case, each in enumerate(zip(*ranks(norm_checks.equal_to_the_whole_batch), strict=True)):
        assert len({bits for bits in each if bits is not None}) == 1, norm_checks.CASES[case]


@pytest.mark.parametrize(
    "check",
    [
        norm_checks.nobody_has_anything, norm_checks.wrapped, norm_checks.wrapped_with_an_empty_rank,
        norm_checks.evaluated_alone, norm_checks.under_autocast, norm_checks.a_half_model, norm_checks.subgroups,
        norm_checks.differentiated_once,
        norm_checks.a_count_that_float32_does_not_hold, norm_checks.a_mean_a_million_times_the_deviation,
    ],
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_on_four_ranks(check, ranks):
    ranks(check)


def test_uneven_inputs_stop_together(ranks):
    assert len(set(ranks(norm_checks.uneven_inputs))) == 1


def test_one_collective_forward_and_one_backward(ranks):
    for calls in ranks(norm_checks.counted):
        assert calls == [[GATHER], [GATHER], [GATHER], [], ["all_reduce"]]
