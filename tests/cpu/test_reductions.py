"""Maxima and sums of lanes, against torch's in float64."""

import math

import pytest
import torch

from aclgrad.cpu import threads
from aclgrad.cpu.lanes import rounded_as
from aclgrad.cpu.reductions import LANES, larger, largest, total


def reduce_rows(_thread, _threads, rows, found, sums, pairs, count, number):
    for row in range(number):
        found[row] = largest(rows + row * count, count)
        sums[row] = total(rows + row * count)
        pairs[row] = larger(rows[row * count], rows[row * count + 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vectors", [1, 2, 7])
def test_rows(dtype, vectors):
    torch.manual_seed(vectors)
    rows = torch.randn(97, LANES * vectors, dtype=dtype)
    for row in range(1, 97):  # the largest stands everywhere, and so does what is not a number
        rows[row, row % rows.shape[1]] = (math.inf, 9.0, math.nan, -math.inf)[row % 4]
    rows[40] = -math.inf
    found, sums, pairs = (torch.full((97,), 5.0, dtype=dtype) for _ in range(3))
    kernel = threads.compile(reduce_rows, (dtype, dtype, dtype, dtype, int, int))
    addresses = (tensor.data_ptr() for tensor in (rows, found, sums, pairs))
    kernel(1, *addresses, rows.shape[1], 97)
    torch.testing.assert_close(found, rows.amax(1), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(pairs, torch.maximum(rows[:, 0], rows[:, 1]), rtol=0, atol=0, equal_nan=True)
    lanes = rows[:, :LANES].double()
    bound = LANES * torch.finfo(dtype).eps * lanes.abs().sum(1).nan_to_num(posinf=0.0)
    exact = lanes.sum(1)
    close = (sums.double() - exact).abs() <= bound
    assert (close | (sums == exact) | (sums.isnan() & exact.isnan())).all()


def round_all(_thread, _threads, numbers, like, count):
    for k in range(count):
        numbers[k] = rounded_as(numbers[k], like)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_number_is_rounded_as_memory_would(dtype):
    numbers = torch.cat([torch.randn(200) * 10.0**e for e in range(-10, 11, 2)])
    numbers[:4] = torch.tensor([math.inf, -math.inf, math.nan, -0.0])
    expected = numbers.to(dtype).float()
    threads.compile(round_all, (torch.float32, dtype, int))(1, numbers.data_ptr(), numbers.data_ptr(), len(numbers))
    torch.testing.assert_close(numbers, expected, rtol=0, atol=0, equal_nan=True)
