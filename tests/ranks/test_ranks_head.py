"""The head over the ranks of a real group: gloo, in two to four processes."""

import head_checks
import pytest
import torch

HALF = (torch.bfloat16, torch.float32)
EVERY = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def require_same_bits(found):
    """For every seed all ranks that took part."""
    for seed, each in enumerate(zip(*found, strict=True)):
        assert len({bits for bits in each if bits is not None}) == 1, seed


def test_sampled_worlds_vocabularies_and_options(ranks):
    require_same_bits(ranks(head_checks.sampled, range(40), HALF, (5, 7, 503)))


@pytest.mark.slow
def test_many_more(ranks):
    for start in range(40, 400, 40):
        require_same_bits(ranks(head_checks.sampled, range(start, start + 40), EVERY, (5, 7, 503)))
    require_same_bits(ranks(head_checks.sampled, range(400, 408), EVERY, (32003,)))


def test_the_same_bits_at_every_run_and_rank(ranks):
    found = ranks(head_checks.the_same_bits_twenty_times)
    assert [len(each) for each in found] == [1] * 4


def test_one_collective_forward_and_one_backward(ranks):
    gather, scatter = ("all_gather_single", "reduce_scatter_single")
    if not hasattr(torch.distributed, gather):
        gather, scatter = "all_gather_into_tensor", "reduce_scatter_tensor"
    for calls in ranks(head_checks.counted, False):
        assert calls == [[gather], ["all_reduce"], [gather]]
    for calls in ranks(head_checks.counted, True):
        assert calls == [[gather] * 2, [gather, scatter], [gather] * 3]


def test_parts_of_the_input_gradient(ranks):
    ranks(head_checks.parts_of_the_input_gradient)


@pytest.mark.parametrize("check", [head_checks.checkpointed, head_checks.copied], ids=lambda check: check.__name__)
def test_on_four_ranks(check, ranks):
    ranks(check)


def test_modules(ranks):
    found = ranks(head_checks.modules)
    weights = [row for weight, _ in found for row in weight]
    assert len({tuple(row) for row in weights}) == len(weights) == 8  # no rank repeats another's rows
    assert "vocab=(0, 3), ranks=4" in found[0][1]
