"""Each standard at its limits: just within passes, just beyond fails, by the figures of the vendor's text."""

import math

import pytest
import torch

from aclgrad.core.errors import InvalidArgument
from aclgrad.testing.precision.kinds import Measured
from aclgrad.testing.precision.standards import LEVELS, all_measures, columns, standard_named, standards
from aclgrad.testing.precision.statistics import flat, measure

HALF, SHORT, FULL, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
COUNT = 1000
NEARLY_NOTHING = math.log2(1e-16)


def judged(name, dtype, errors, true=1.5, second=None, level="L0"):
    """The verdict on `true + errors`, beside a benchmark with errors of its own; without them it is as far off."""
    truth = torch.full((COUNT,), true, dtype=torch.float64) if isinstance(true, float) else true
    statistics = [
        measure(flat(truth + each), flat(truth), COUNT, dtype, all_measures(dtype))[0]
        for each in (errors, errors if second is None else second)
    ]
    return (
        standard_named(name).judge(Measured(statistics[0], statistics[1], statistics[1], dtype, dtype, dtype), level).ok
    )


def some(count, size, others=0.0):
    """Errors of which so many have a size, and all others another."""
    errors = torch.full((COUNT,), others, dtype=torch.float64)
    errors[:count] = size
    return errors


@pytest.mark.parametrize(
    ("name", "dtype", "atol", "rtol"),
    [("opbase", HALF, -10, -10), ("opbase", SHORT, -7, -7), ("opbase", FULL, -13, -13),
     ("opbase-ttk", HALF, -9, -9), ("opbase-ttk", SHORT, -6, -6), ("opbase-ttk", FULL, -16, -10)],
)  # fmt: skip
def test_mixed_tolerance(name, dtype, atol, rtol):
    """Of 1000 elements 10 may be beyond atol + rtol · |true|, and none beyond the limit and 32 ulp (TTK: of one)."""
    within = 2.0**atol + 1.5 * 2.0**rtol
    assert judged(name, dtype, some(COUNT, 0.999 * within))
    assert judged(name, dtype, some(10, 2 * within))
    assert not judged(name, dtype, some(11, 1.001 * within))
    limit = standard_named(name).of(dtype)["limit"]
    for true in (1.5, 1024 * 1.5, 2.0**20):
        unit = 1.0 if name == "opbase-ttk" else 2.0 ** math.floor(math.log2(true))
        if true < 6e4 or dtype != HALF:
            most = max(limit, 32 * torch.finfo(dtype).eps * unit)
            assert judged(name, dtype, some(1, 0.999 * most), true)
            assert not judged(name, dtype, some(1, 1.001 * most), true)


@pytest.mark.parametrize("name", ["mere", "single"])
@pytest.mark.parametrize(("dtype", "power"), [(HALF, -10), (SHORT, -7), (FULL, -13)])
def test_relative_errors(name, dtype, power):
    """The mean below the threshold, the largest below ten times that."""
    threshold = 1.5 * 2.0**power
    assert judged(name, dtype, some(COUNT, 0.999 * threshold))
    assert not judged(name, dtype, some(COUNT, 1.001 * threshold))
    assert judged(name, dtype, some(1, 9.99 * threshold))
    assert not judged(name, dtype, some(1, 10.01 * threshold))


@pytest.mark.parametrize("name", ["double", "msprobe-doc", "msprobe-code"])
@pytest.mark.parametrize(
    ("level", "largest", "mean", "few"), [("L0", 10, 2, 4), ("L1", 5, 1.5, 4), ("L2", 2, 1.2, 1.9)]
)
def test_two_benchmarks(name, level, largest, mean, few):
    """The largest error, the mean and the root mean square as multiples of the benchmark's, each at its limit alone."""
    unit = 2.0**-12
    even, spread = some(COUNT, unit), some(COUNT // 2, 2 * unit)
    count = round(
        COUNT * (mean**2 - 0.25) / (few**2 - 0.25)
    )  # errors of `few` units beside halves: their rms is `mean`
    rms = some(count, few * unit, others=unit / 2)
    for errors, second in (
        (some(1, largest * unit, others=unit / 2), even),
        (some(COUNT, mean * unit), spread),  # whose root mean square is larger than its mean
        (rms, even),
    ):
        assert judged(name, FULL, 0.997 * errors, second=second, level=level)
        assert not judged(name, FULL, 1.003 * errors, second=second, level=level)


@pytest.mark.parametrize(
    ("name", "dtype", "guard", "least"),
    [(f"msprobe-{which}", dtype, guard, least) for which in ("doc", "code")
     for dtype, guard, least in ((HALF, -10, -11), (SHORT, -8, -8), (FULL, -23, -14))],
)  # fmt: skip
def test_a_benchmark_without_errors_is_taken_for_one_that_is_a_little_off(name, dtype, guard, least):
    """msprobe divides by no less than this; the relative errors have a guard in their denominators."""
    true, none = 2.0**-6, some(0, 0.0)
    errors = some(COUNT, 2 * 2.0**least * (true + 2.0**guard))
    assert judged(name, dtype, 0.999 * errors, true, second=none)
    assert not judged(name, dtype, 1.001 * errors, true, second=none)
    assert judged("double", dtype, none, true, second=none, level="L2")
    assert not judged("double", dtype, errors, true, second=none)


@pytest.mark.parametrize(
    ("name", "dtype", "small", "atol"),
    [("double", HALF, -11, -16), ("double", SHORT, -8, -16), ("double", FULL, -14, -30),
     ("msprobe-doc", HALF, -11, -16), ("msprobe-doc", SHORT, -8, -16), ("msprobe-doc", FULL, -14, -30),
     ("msprobe-code", HALF, -10, NEARLY_NOTHING), ("msprobe-code", SHORT, -10, NEARLY_NOTHING),
     ("msprobe-code", FULL, -20, -30)],
)  # fmt: skip
def test_small_values_are_counted(name, dtype, small, atol):
    """Twice as many errors beyond atol among small values as the benchmark has; just above they are normal."""
    values = torch.full((COUNT,), 2.0**small, dtype=torch.float64)
    error = 1.01 * 2.0**atol
    base = some(100, error)
    assert judged(name, dtype, some(200, error), values, second=base)
    assert not judged(name, dtype, some(202, error), values, second=base)
    assert judged(name, dtype, some(COUNT, 0.99 * 2.0**atol), values, second=base)
    above = values * 1.01
    assert judged(name, dtype, some(COUNT, error), above, second=some(COUNT, error))
    assert not judged(name, dtype, some(COUNT, error), above, second=base * 0) or name.startswith("msprobe")


def test_the_document_and_the_code_of_msprobe_differ():
    """A value of 2^-12 is small in float16 by the document and by the code; one of 2^-10.5 by the code alone."""
    values = torch.full((COUNT,), 2.0**-10.5, dtype=torch.float64)
    errors, base = some(COUNT, 2.0**-17), some(COUNT, 2.0**-18)
    assert judged("msprobe-doc", HALF, errors, values, second=base)
    assert not judged("msprobe-code", HALF, errors, values, second=base * 0)  # where 1e-16 is already an error


@pytest.mark.parametrize(("dtype", "least"), [(HALF, -11), (SHORT, -8), (FULL, -14)])
def test_ulp(dtype, least):
    """Half types: a thousandth beyond one ulp. float32: 5 % beyond 32, or a mean of 64. Or fewer than the benchmark."""
    one, beyond = torch.finfo(dtype).eps, 32 if dtype == FULL else 1
    share = {HALF: 1, SHORT: 4, FULL: 50}[dtype]  # 4: a benchmark is taken to be off in 2^-8 of bfloat16's elements
    assert judged("ulp", dtype, some(COUNT, beyond * one))
    assert judged("ulp", dtype, some(share - 1, 2e4 * one))
    assert not judged("ulp", dtype, some(share, 2e4 * one))
    assert judged("ulp", dtype, some(share, 2e4 * one), second=some(share + 1, 2e4 * one))
    if dtype == FULL:
        assert judged("ulp", dtype, some(COUNT, 63 * one))
        assert not judged("ulp", dtype, some(COUNT, 65 * one))
    few = standard_named("ulp").of(dtype)["least"]  # of a benchmark without errors
    assert few == 2.0**least


def test_shares_of_relative_errors():
    """The cosine first; a small largest error settles it, else the shares that the dtype asks for."""
    assert judged("acc-check", FULL, some(COUNT, 0.9e-3), true=torch.linspace(1, 2, COUNT, dtype=torch.float64) * 1e-3)
    wrong = torch.linspace(-1, 1, COUNT, dtype=torch.float64)
    assert not judged("acc-check", FULL, -2e-4 * wrong, true=1e-4 * wrong)  # the opposite, though all are small
    for dtype, guard, shares in ((HALF, -10, (1e-2, 1e-3)), (SHORT, -8, (1e-2, 1e-3)), (FULL, -23, (1e-3, 1e-4)),
                                 (DOUBLE, -52, (1e-3, 1e-4))):  # fmt: skip
        true = torch.full((COUNT,), 2.0**-8 if dtype in (HALF, SHORT) else 2.0, dtype=torch.float64)
        for limit in shares:
            errors = limit * (true + 2.0**guard)
            allowed = max(0, round(COUNT * limit) - 1)
            spoilt = some(1 + allowed, 0.5)  # so that the largest error settles nothing, and so many are beyond
            assert not judged("acc-check", dtype, spoilt + 1.01 * errors, true)
            assert judged("acc-check", dtype, some(0, 0.0) + 0.99 * min(shares) * (true + 2.0**guard), true)


@pytest.mark.parametrize(("dtype", "small", "atol", "guard", "rtol"), [
    (HALF, -10, 2.0**-16, -10, -10), (SHORT, -10, 1e-16, -8, -8), (FULL, -20, 2.0**-30, -23, -20)])  # fmt: skip
def test_absolute_thresholds(dtype, small, atol, guard, rtol):
    """Not one normal value beyond rtol, not one small value beyond atol."""
    true = 2.0 ** (small + 1)
    error = 2.0**rtol * (true + 2.0**guard)
    assert judged("threshold", dtype, some(COUNT, 0.999 * error), true)
    assert not judged("threshold", dtype, some(1, 1.001 * error), true)
    assert judged("threshold", dtype, some(COUNT, 0.999 * atol), 2.0**small)
    assert not judged("threshold", dtype, some(1, 1.001 * atol + 1e-17), 2.0**small)


@pytest.mark.parametrize("name", standards())
def test_nothing_passes_that_is_misplaced_or_all_zeros(name):
    true = torch.full((COUNT,), 2.0**-13, dtype=torch.float64)  # so small that a tolerance would let zeros pass
    assert judged(name, HALF, -true, true) is False
    for value in (torch.nan, torch.inf):
        assert judged(name, HALF, some(1, value), true) is False
    for level in LEVELS:
        assert judged(name, HALF, true * 0, true, level=level) is True


def test_zeros_are_right_where_the_truth_has_none_but_the_smallest_numbers():
    """A chip that flushes subnormal numbers."""
    true = torch.full((COUNT,), 2.0**-16, dtype=torch.float64)
    assert judged("rule", HALF, -true, true, second=true * 0) is False
    assert judged("opbase", HALF, -true, true) is True


def test_every_column_of_msprobe_is_a_metric():
    for dtype in (HALF, SHORT, FULL):
        assert set(columns(dtype).values()) <= set(all_measures(dtype))
        assert len(columns(dtype)) == 15
    with pytest.raises(InvalidArgument, match="standard is 'nosuch', expected one of rule, opbase"):
        standard_named("nosuch")
