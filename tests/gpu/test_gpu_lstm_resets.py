"""LSTMs that are reset inside their sequences on a GPU, in every way their recurrence can run."""

import pytest
import torch
from gpu_calls import BACKWARD_SIZES, FORWARD_SIZES, with_reset
from gpu_calls import backward as backward_problem
from gpu_calls import forward as forward_problem
from matrix import flat, right_twice

from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.lstm import spec, spec_resets

FORWARD, BACKWARD = spec_resets.lstm_with_resets, spec_resets.lstm_with_resets_backward


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("name", FORWARD_SIZES)
def test_forward(name, dtype, cuda):
    T, N, H = FORWARD_SIZES[name]
    right_twice(FORWARD, with_reset(FORWARD, forward_problem(T, N, H, dtype), torch.rand(T, N) < 0.3))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("name", BACKWARD_SIZES)
def test_backward(name, dtype, cuda):
    T, N, H = BACKWARD_SIZES[name]
    right_twice(BACKWARD, with_reset(BACKWARD, backward_problem(T, N, H, dtype), torch.rand(T, N) < 0.3))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("hidden", [64, 256, 1024])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_lengths_differ_and_both_directions(dtype, hidden, share, cuda):
    lengths = [9] * 10 + [6] * 20 + [1] * 10
    options = {"layers": 2, "directions": 2, "lengths": lengths}
    for operator, problem in ((FORWARD, forward_problem), (BACKWARD, backward_problem)):
        args = problem(9, len(lengths), hidden, dtype, **options)
        right_twice(operator, with_reset(operator, args, torch.rand(9, len(lengths)) < share))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_without_a_reset_the_bits_are_those_of_the_plain_lstm(dtype, cuda):
    """Where both run the same way."""
    args = forward_problem(7, 20, 256, dtype)
    never = torch.zeros(7, 20, dtype=torch.bool)
    plain, found = spec.lstm(*args), FORWARD(*with_reset(FORWARD, args, never))
    for one, other in zip(flat(plain), flat(found), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_not_even_a_nan_passes(dtype, cuda):
    """From what comes before a reset to what comes after, and of gradients the other way round."""
    T, N, H = 8, 20, 256
    args = forward_problem(T, N, H, dtype)
    reset = torch.zeros(T, N, dtype=torch.bool)
    reset[3, 5] = reset[0, 7] = True
    args[0][1, 5] = torch.nan  # of the input
    for state in args[2]:
        state[0, 7] = torch.nan
    output, *_ = FORWARD(*with_reset(FORWARD, args, reset))
    undefined = output.isnan().any(-1)
    assert bool(undefined[1:3, 5].all()) and int(undefined.sum()) == 2
    args = backward_problem(T, N, H, dtype)
    args[3][5, 5] = torch.nan  # of the output's gradient
    dx, dh, *_ = BACKWARD(*with_reset(BACKWARD, args, reset))
    undefined = dx.isnan().any(-1)
    assert bool(undefined[3:6, 5].all()) and int(undefined.sum()) == 3
    assert not bool(dh.isnan().any())
    assert not bool(dh[0, 7].any())
