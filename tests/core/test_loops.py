"""What kernels ask about loops; that they visit every element is proved in `tests/cpu/test_strided.py`."""

import pytest
import torch

from aclgrad.core.loops import Loops


def loops(*tensors):
    return Loops.over(tensors[0].shape, *(tensor.stride() for tensor in tensors))


PLAIN = torch.empty(4, 6, 5, 3)
LAST = torch.empty(4, 5, 3, 6).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("tensors", "flat"),
    [
        ((PLAIN, PLAIN), True),
        ((LAST, LAST, LAST), True),
        ((PLAIN, LAST), False),
        ((PLAIN, PLAIN[:, :, :, :1].expand(PLAIN.shape)), False),
        ((PLAIN[::2], PLAIN[::2]), False),
        ((PLAIN[..., ::2], PLAIN[..., ::2]), False),
        ((torch.empty(()), torch.empty(())), True),
        ((PLAIN[:0], LAST[:0]), True),
    ],
)
def test_flat_means_one_gapless_run_in_one_order(tensors, flat):
    assert loops(*tensors).flat is flat


def test_crossed_means_that_operands_disagree_about_the_innermost_dimension():
    assert loops(torch.empty(70, 80), torch.empty(80, 70).t()).crossed
    assert not loops(torch.empty(70, 80), torch.empty(70, 80)).crossed
    assert not loops(torch.empty(70, 80)[:, ::2], torch.empty(70, 40)).crossed
    assert not loops(torch.empty(7)[::2]).crossed


def test_reach_is_the_furthest_offset():
    assert loops(PLAIN, LAST).max_offset == PLAIN.numel() - 1
    assert Loops.over((5, 1000), (2**29, 3), (1000, 1)).max_offset == 4 * 2**29 + 999 * 3
    assert Loops.over((), ()).max_offset == 0
