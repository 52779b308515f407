"""The forward pass on a GPU where every step is a launch by itself, in Triton's interpreter where there is no GPU."""

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.backends import widen
from aclgrad.core.memory import tensors_in
from aclgrad.core.spec import BF16, F16, F32
from aclgrad.ops.lstm import cases_lstm, reference, spec
from aclgrad.ops.lstm.triton import choose
from aclgrad.ops.lstm.triton.recurrence.per_step.cut import PerStep, Product
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Case

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check(dtype, *sizes, **options):
    with DEVICE:
        args = Case("steps", cases_lstm._lstm(*sizes, **options), (dtype,)).build(dtype)
    results, truth, naive = (
        tensors_in(values)
        for values in (spec.lstm(*args, backend="triton"), reference.lstm(*map(widen, args)), reference.lstm(*args))
    )
    for result, true, base in zip(results, truth, naive, strict=True):
        assert_within_baseline(result, true, base)


@pytest.fixture(autouse=True)
def nothing_resident(monkeypatch):
    """Nothing fits the device."""
    monkeypatch.setattr(choose, "persistent_forward", lambda *_: ())
    monkeypatch.setattr(choose.warp_specialised, "warp_specialised_forward", lambda *_: ())
    spec.lstm._plans.clear()
    yield
    spec.lstm._plans.clear()


@pytest.mark.gpu
@pytest.mark.interpreted(dtype=[F32, F16])
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("product", [Product.LIBRARY, Product.KERNEL], ids=["library", "own"])
def test_products_of_the_library_and_of_the_kernel(product, dtype, monkeypatch):
    monkeypatch.setattr(choose, "per_step_forward", lambda dims: [PerStep(product)])
    check(dtype, 4, 3, 5, 20, directions=2)
    check(dtype, 5, 4, 3, 9, layers=2, directions=2, lengths=(5, 3, 3, 1))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "hidden"), [(F32, 130), (F16, 520)], ids=str)
def test_sums_of_a_step_that_begin_anew(dtype, hidden):
    check(dtype, 2, 3, 5, hidden)


@pytest.mark.gpu
@pytest.mark.parametrize("batch_first", [True, False])
def test_deep_products_are_split(batch_first):
    check(F32, 3, 5, 300, 32, layers=2, directions=2, batch_first=batch_first)
    check(F32, 4, 64, 256, 64)  # both operands of the product have the same shape


@pytest.mark.gpu
@pytest.mark.parametrize("states", [2, None])
def test_large_initial_states_reach_the_rows_that_begin_late(states):
    with DEVICE:
        case = Case("late", cases_lstm._lstm(4, 3, 5, 6, directions=2, lengths=(4, 2, 1), states=states), (F32,))
        args = case.build(F32)
    if states:
        args[2][0].mul_(300)
    results, truth, naive = (
        tensors_in(values)
        for values in (spec.lstm(*args, backend="triton"), reference.lstm(*map(widen, args)), reference.lstm(*args))
    )
    for result, true, base in zip(results, truth, naive, strict=True):
        assert_within_baseline(result, true, base)
