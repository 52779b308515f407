"""The LSTM's recurrence on a GPU, in every way it can run."""

import pytest
import torch
from gpu_calls import BACKWARD_SIZES as SIZES
from gpu_calls import FLOAT32_SIZES, begun_late
from gpu_calls import backward as problem
from matrix import flat

from aclgrad.core.backends import widen
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.lstm import reference, spec
from aclgrad.testing import assert_within_baseline


def check(args):
    results, again = (flat(spec.lstm_backward(*args, backend="triton")) for _ in range(2))
    truth, naive = flat(reference.lstm_backward(*map(widen, args))), flat(reference.lstm_backward(*args))
    for index, (result, repeated, true, base) in enumerate(zip(results, again, truth, naive, strict=True)):
        assert torch.equal(result, repeated)
        assert_within_baseline(result, true, base, f"output {index}")


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_every_way_to_run_is_accurate_and_repeats_its_bits(name, dtype, cuda):
    check(problem(*SIZES[name], dtype))


@pytest.mark.parametrize("name", FLOAT32_SIZES)
def test_the_ways_of_float32_are_accurate_and_repeat_their_bits(name, cuda):
    check(problem(*FLOAT32_SIZES[name], F32))


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_lengths_differ_over_several_groups(dtype, cuda):
    check(problem(9, 40, 256, dtype, layers=2, directions=2, lengths=[9] * 10 + [6] * 20 + [1] * 10))


@pytest.mark.parametrize(
    "options",
    [{"lengths": [9] * 30 + [4] * 30 + [1] * 10}, {"batch_first": True, "layers": 2}, {"bias": False}],
    ids=str,
)
def test_row_owners_take_every_layout(options, cuda):
    check(problem(9, 70, 1024, F32, **options))


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((70, 140, 1024), {}),
        ((5, 150, 1024), {"lengths": [5] * 40 + [3] * 100 + [1] * 10}),
        ((5, 256, 768), {"batch_first": True, "layers": 2}),
        ((5, 256, 768), {"lengths": [5] * 130 + [2] * 126, "bias": False}),
    ],
    ids=str,
)
def test_warp_specialised_row_owners_take_every_layout(size, options, cuda):
    check(problem(*size, F32, **options))


@pytest.mark.parametrize("rows", [70, 200])
def test_states_in_memory_of_no_alignment(rows, cuda):
    args = problem(9, rows, 1024, F32)
    for at in (3, 4, 5):
        args[at] = begun_late(args[at])
    check(args)


@pytest.mark.parametrize("rows", [70, 200])
def test_a_nan_spreads_to_earlier_steps_of_its_row_and_nobody_waits_for_it(rows, cuda):
    args = problem(9, rows, 1024, F32)
    args[3][4, 5, 0] = torch.nan
    undefined = spec.lstm_backward(*args, backend="triton")[0].isnan()
    assert bool(undefined[:4, 5].all()) and not bool(undefined[5:].any())
    undefined[:, 5] = False
    assert not bool(undefined.any())


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_large_float32_products_are_split(dtype, cuda):
    check(problem(64, 64, 512, dtype))


@pytest.mark.parametrize("units", [818, 301])
def test_large_float32_products_of_rows_at_odd_addresses(units, cuda):
    check(problem(18, 64, units, F32, directions=2))


@pytest.mark.parametrize("size", [(16, 64, 512), (9, 64, 1024), (4, 300, 1024), (4, 600, 1024)], ids=str)
def test_less_precision_only_where_the_switch_allows_it(size, cuda):
    args = problem(*size, F32)
    truth = flat(reference.lstm_backward(*map(widen, args)))
    errors = []
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            results = flat(spec.lstm_backward(*args, backend="triton"))
            errors.append(max(float((r - t).norm() / t.norm()) for r, t in zip(results, truth, strict=True)))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[0] < 2e-6 < 1e-5 < errors[1] < 5e-3
