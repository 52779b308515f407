"""The LSTM's forward pass on a GPU, in every way its recurrence can run."""

import pytest
import torch
from gpu_calls import FORWARD_SIZES as SIZES
from gpu_calls import begun_late
from gpu_calls import forward as problem
from matrix import flat

from aclgrad.core.backends import widen
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.lstm import reference, spec
from aclgrad.testing import assert_within_baseline


def check(args):
    results, again = (flat(spec.lstm(*args, backend="triton")) for _ in range(2))
    truth, naive = flat(reference.lstm(*map(widen, args))), flat(reference.lstm(*args))
    for index, (result, repeated, true, base) in enumerate(zip(results, again, truth, naive, strict=True)):
        assert (result is None) == (true is None)
        if true is not None:
            assert torch.equal(result, repeated)
            assert_within_baseline(result, true, base, f"output {index}")


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("name", SIZES)
def test_every_way_to_run_is_accurate_and_repeats_its_bits(name, dtype, cuda):
    check(problem(*SIZES[name], dtype))


@pytest.mark.parametrize("states", [2, None])
@pytest.mark.parametrize(("tens", "hidden"), [(1, 64), (1, 256), (4, 512)])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_lengths_differ_over_several_groups_or_pairs(dtype, tens, hidden, states, cuda):
    lengths = ([9] * 10 + [6] * 20 + [1] * 10) * tens
    lengths.sort(reverse=True)
    check(problem(9, len(lengths), hidden, dtype, layers=2, directions=2, lengths=lengths, states=states))


@pytest.mark.parametrize(("tens", "hidden"), [(1, 256), (4, 512)])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_initial_states_of_any_size(dtype, tens, hidden, cuda):
    lengths = [4] * 10 * tens + [2] * 30 * tens
    args = problem(4, len(lengths), hidden, dtype, lengths=lengths, directions=2)
    args[2][0] *= 200
    check(args)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("rows", "hidden", "dtype"), [(33, 320, F16), (170, 512, F32)], ids=str)
def test_batch_first_and_inference(rows, hidden, dtype, train, cuda):
    check(problem(7, rows, hidden, dtype, layers=2, directions=2, batch_first=True, bias=False, train=train))


@pytest.mark.parametrize("features", [512, 1024, 1000, 257])
def test_deep_float32_products_are_split(features, cuda):
    check(problem(12, 64, 512, F32, features, directions=1 + features % 2))


@pytest.mark.parametrize(("rows", "hidden"), [(20, 96), (170, 512)])
def test_results_of_any_strides(rows, hidden, cuda):
    args = problem(5, rows, hidden, F32, directions=2)
    plan = spec.lstm.plan(args)
    outs = plan.allocate()
    turned = [
        [member.transpose(0, -1).contiguous().transpose(0, -1) if k % 2 else member for k, member in enumerate(out)]
        if isinstance(out, list)
        else out.transpose(0, -1).contiguous().transpose(0, -1)
        for out in outs
    ]
    results = spec.lstm(*args, out=tuple(turned))
    for result, expected in zip(flat(results), flat(spec.lstm(*args)), strict=True):
        assert torch.equal(result, expected)


@pytest.mark.parametrize(("rows", "dtype"), [(64, F16), (300, F32)], ids=str)
def test_states_in_memory_of_no_alignment(rows, dtype, cuda):
    args = problem(4, rows, 512, dtype)
    args[2] = [begun_late(state) for state in args[2]]
    check(args)


@pytest.mark.parametrize(("rows", "dtype"), [(64, F16), (300, F32)], ids=str)
def test_a_nan_spreads_where_its_state_does_and_nobody_waits_for_it(rows, dtype, cuda):
    args = problem(6, rows, 512, dtype)
    args[0][2, 5, 0] = torch.nan
    output = spec.lstm(*args, backend="triton")[0]
    undefined = output.isnan()
    assert bool(undefined[2:, 5].all()) and int(undefined.sum()) == undefined[2:, 5].numel()


def test_less_precision_only_where_the_switch_allows_it(cuda):
    args = problem(16, 64, 512, F32)
    truth = flat(reference.lstm(*map(widen, args)))
    errors = []
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            results = flat(spec.lstm(*args, backend="triton"))
            errors.append(max(float((r - t).norm() / t.norm()) for r, t in zip(results, truth, strict=True)))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[0] < 2e-6 < 1e-5 < errors[1] < 5e-3
