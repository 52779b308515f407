"""Metrics, places and worst elements: the same as computed in one go, whatever the pieces."""

import math

import numpy as np
import pytest
import torch

from aclgrad.testing import judge
from aclgrad.testing.precision import measures as of
from aclgrad.testing.precision import statistics
from aclgrad.testing.precision.elements import precision_of
from aclgrad.testing.precision.places import BINS, COLUMNS, ROWS, Places
from aclgrad.testing.precision.standards import all_measures
from aclgrad.testing.precision.statistics import flat, measure
from aclgrad.testing.precision.watchers import EXACT, ZERO, Histogram, Worst
from aclgrad.testing.verification.truth import rounded

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=[1000, 64])
def pieces(request, monkeypatch):
    """Pieces so small that a tensor of a few hundred elements has many, and threads get some each."""
    monkeypatch.setattr(statistics, "PIECE", request.param)
    monkeypatch.setattr(statistics, "SHARE", 3 * request.param)


def data(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    if true.numel() > 8:
        true.view(-1)[::7] *= 2.0**-18
        true.view(-1)[::11] = 0.0
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) * torch.finfo(dtype).eps * 4
    return (true * (1 + noise) + noise * 1e-3).to(dtype), true


def by_numpy(found, true, dtype, measure):
    """The metrics as their definitions say, in one go."""
    a, g = found.double().numpy().ravel(), true.numpy().ravel()
    e, size = np.abs(a - g), np.abs(g)
    spacing, smallest = precision_of(dtype)
    exponent = np.maximum(np.floor(np.log2(np.where(size > 0, size, 2.0**-1022))), smallest)
    ulp = e / 2.0 ** np.maximum(exponent + spacing, -1022)
    counted = np.where(g == 0, e * 2.0**-spacing, ulp)
    name, p = measure
    normal = size > p[1 if "relative" in name else 0] if p and name != "matched" else None
    relative = e / (size + p[0]) if p else None
    return {
        "count": lambda: len(e), "max_error": e.max, "mean_error": e.mean, "bias": (a - g).mean,
        "rms_error": lambda: math.sqrt((e * e).mean()), "max_true": size.max,
        "rms_true": lambda: math.sqrt((g * g).mean()), "largest_found": np.abs(a).max,
        "cosine": lambda: a @ g / math.sqrt((a @ a) * (g @ g)),
        "imbalance": lambda: abs(int((a > g).sum()) - int((a < g).sum())) / len(e),
        "max_ulp": ulp.max, "mean_ulp": counted.mean, "share_beyond_ulp": lambda: (counted > p[0]).mean(),
        "max_relative": lambda: relative[normal].max(initial=0), "mean_relative": lambda: relative[normal].mean(),
        "rms_normal": lambda: math.sqrt((e[normal] ** 2).mean()),
        "share_relative_below": lambda: (relative < p[1]).mean(),
        "share_relative_beyond": lambda: (relative[normal] > p[2]).mean(),
        "small_errors": lambda: (e[~normal] > p[1]).sum(), "share_small_errors": lambda: (e[~normal] > p[1]).mean(),
        "matched": lambda: (e <= p[0] + p[1] * size).mean(), "beyond": lambda: ((e > p[0]) & (ulp > p[1])).sum(),
    }[name]()  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_metric_is_what_its_definition_says(dtype, pieces):
    found, true = data((7, 143), dtype)
    wanted = all_measures(dtype)
    counted, _ = measure(flat(found), flat(true), found.numel(), dtype, wanted)
    for each in wanted:
        assert counted[each] == pytest.approx(by_numpy(found, true, dtype, each), rel=1e-9, abs=1e-300), str(each)


def test_metrics_are_the_same_for_any_number_of_threads(pieces):
    found, true = data((50, 61), torch.float32)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(measure(flat(found), flat(true), found.numel(), torch.float32, of.ALWAYS)[0])
    finally:
        torch.set_num_threads(threads)
    assert results[0] == results[1] == results[2]


def test_what_is_not_finite_is_counted_apart(pieces):
    found, true = data((500,), torch.float16)
    for place, a, g in ((3, math.nan, math.nan), (4, math.inf, math.inf), (5, math.inf, 7e4), (6, math.nan, 1.0),
                        (7, 1.0, math.nan), (8, -math.inf, math.inf), (9, 65504.0, -math.inf)):  # fmt: skip
        found[place], true[place] = a, g
    counted, (worst,) = measure(flat(found), flat(true), 500, torch.float16, of.BASIC, lambda: (Worst(),))
    assert counted.kinds == {
        "nan where nan is true": 1, "+inf where +inf is true": 2, "nan where finite is true": 1,
        "finite where nan is true": 1, "-inf where +inf is true": 1, "finite where -inf is true": 1,
    }  # fmt: skip
    assert counted.misplaced == 4
    assert counted[of.count()] == 493
    assert [bad.place for bad in worst.misplaced] == [6, 7, 8, 9]


SHAPES = [
    (),
    (1,),
    (5,),
    (1000,),
    (3, 200),
    (200, 3),
    (4, 5, 6, 7),
    (2, 1, 3, 97),
    (1, 300),
    (97, 2),
    (3, 5000),
    (0, 4),
    (3, 0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_are_found_where_they_lie(shape, pieces):
    found, true = data(shape, torch.float32)
    errors = (found.double() - true).abs()
    _, (places, worst) = measure(
        flat(found), flat(true), found.numel(), torch.float32, watchers=lambda: (Places(shape), Worst())
    )
    for d, size in enumerate(shape):
        width = max(1, -(-size // BINS))
        along = errors.movedim(d, 0).flatten(1) if len(shape) > 1 else errors
        expected = [float(part.max()) if part.numel() else 0.0 for part in along.split(width)] if size else []
        assert places.along[d].tolist() == expected
    if found.numel():
        lines = errors.reshape(-1, shape[-1] if shape else 1)
        height, width = -(-lines.shape[0] // ROWS), -(-lines.shape[1] // COLUMNS)
        cells = [[float(cell.max()) for cell in rows.split(width, 1)] for rows in lines.split(height)]
        assert places.map.tolist() == cells
        line = errors.reshape(-1)
        largest = sorted(range(len(line)), key=lambda k: (-float(line[k]), k))[: len(worst.by_error)]
        assert [bad.place for bad in worst.by_error] == [k for k in largest if line[k] > 0]


def test_a_misplaced_element_is_the_brightest_place(pieces):
    found, true = data((20, 30), torch.float32)
    found[7, 11] = torch.nan
    true[3, 4] = found[3, 4] = torch.inf  # which is right
    _, (places,) = measure(flat(found), flat(true), 600, torch.float32, watchers=lambda: (Places((20, 30)),))
    assert places.map.isinf().nonzero().tolist() == [[7, 11]]
    assert places.map[3, 4] == 0


def test_the_histogram_counts_every_element_by_error_and_size(pieces):
    true = torch.tensor([1.0, 1.0, 1.0, 1.0, 8.0, 0.0], dtype=torch.float64).repeat(60)
    ulp = torch.tensor([0.0, 0.5, 1.0, 3.0, 1.0, 0.0], dtype=torch.float64).repeat(60)
    found = (true + ulp * 2.0 ** (true.clamp(min=1).log2() - 23)).float()
    _, (histogram,) = measure(flat(found), flat(true), 360, torch.float32, watchers=lambda: (Histogram(),))
    counts = dict(histogram.by_error())
    assert {k: n for k, n in counts.items() if n} == {EXACT: 180, 0: 120, 1: 60}  # half an ulp above is rounded away
    sizes = {size: sum(row) for size, row in histogram.by_size()}
    assert sizes == {ZERO: 60, 0: 240, 3: 60}


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_truth_is_rounded_once(dtype):
    """By numpy's and by exact arithmetic: what lies between two numbers goes to the nearer, from the middle to even."""
    generator = torch.Generator().manual_seed(1)
    near = torch.randn(4000, generator=generator).to(dtype)
    above = torch.nextafter(near, torch.full_like(near, torch.inf))
    middle = (near.double() + above.double()) / 2
    for nudge in (-(2.0**-45), 0.0, 2.0**-45):
        values = middle * (1 + nudge)
        result = rounded(values, dtype).double()
        assert torch.equal(
            (result - values).abs(), torch.minimum((near.double() - values).abs(), (above.double() - values).abs())
        )
        if dtype == torch.float16:
            assert np.array_equal(result.numpy(), values.numpy().astype(np.float16).astype(np.float64))
    ends = torch.tensor(
        [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e300, 1e-300, 65519.9, 65520.0], dtype=torch.float64
    )
    assert torch.equal(rounded(ends, dtype).isnan(), ends.isnan())
    assert torch.equal(rounded(ends, dtype).nan_to_num(), ends.to(dtype).nan_to_num())


def test_the_rule_judges_tensors_and_their_metrics_alike():
    result, truth = data((300,), torch.float16)
    naive = truth.half()
    verdict = judge(result, truth, naive)
    error = (result.double() - truth).abs()
    assert verdict.max_error == float(error.max())
    assert verdict.rms_error == pytest.approx(float(error.square().mean().sqrt()))
    assert verdict.ulp == pytest.approx(float(error.max()) / float(truth.abs().max()) / torch.finfo(torch.float16).eps)
