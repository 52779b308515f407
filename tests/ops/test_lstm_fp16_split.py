"""float32 products split into float16, and the steps of the recurrence that use them."""

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.backends import widen
from aclgrad.core.known import Known
from aclgrad.core.spec import F16, F32
from aclgrad.gpu.launch import INTERPRETING
from aclgrad.ops.lstm import cases, reference, spec
from aclgrad.ops.lstm.triton import choose
from aclgrad.ops.lstm.triton.fp16_split.products import multiply_split
from aclgrad.ops.lstm.triton.recurrence.per_step.cut import (
    LONGEST_PARTIAL,
    MOST_PARTIALS,
    PARTIAL_ALIGN,
    PARTIAL_LENGTH,
    PerStep,
    Product,
    partials,
)
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Case

interpreted = pytest.mark.skipif(not INTERPRETING, reason="needs Triton's interpreter: TRITON_INTERPRET=1")


@pytest.mark.parametrize("depth", [8, 80, 512, 2048, 4096, 4096 + 8, 3 * 1024, 16384])
def test_partial_products_are_aligned_and_short_enough(depth):
    count = partials(depth)
    assert count is not None and count <= MOST_PARTIALS
    assert (
        depth % count == 0
        and depth // count % PARTIAL_ALIGN == 0
        and depth // count <= (LONGEST_PARTIAL if depth > MOST_PARTIALS * PARTIAL_LENGTH else PARTIAL_LENGTH)
    )


@pytest.mark.parametrize("depth", [1, 4, 100, 4 * 1001, 64 * 1024])
def test_a_depth_without_good_partial_products_is_not_cut(depth):
    assert partials(depth) is None


@interpreted
@pytest.mark.parametrize("split_k", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("depth", [0, 7, 30, 1025])
def test_partial_products_add_up(depth, parts, split_k):
    torch.manual_seed(0)
    a, b = torch.randn(depth, 9, dtype=torch.float64), torch.randn(depth, 11, dtype=torch.float64)
    shape = (9, 11) if split_k is None else (split_k, 9, 11)
    out = torch.full(shape, torch.nan)
    multiply_split([part.t() for part in _parts(a, parts)], _parts(b, parts), out)
    exact = a.t() @ b
    total = out if split_k is None else out.sum(0)
    assert float((total - exact).norm()) <= (3e-6 if parts == 2 else 3e-3) * max(float(exact.norm()), 1e-30)


def _parts(matrix, count):
    high = matrix.to(F16)
    return [high, (matrix - high).to(F16)][:count]


@interpreted
@pytest.mark.parametrize("options", [{}, {"directions": 2, "layers": 2}, {"lengths": (4,) * 20 + (2,) * 14}], ids=str)
def test_steps_with_split_products_are_as_accurate_as_a_naive_run(options, monkeypatch):
    """A batch of 34 rows whose gradients differ in size by many orders of magnitude."""
    split = PerStep(Product.SPLIT_LIBRARY, partials(4 * 6))
    monkeypatch.setattr(choose, "per_step_backward", lambda dims, dtype: [split])
    monkeypatch.setattr(spec.lstm_backward, "_plans", Known())
    args = Case("split", cases._lstm(4, 34, 3, 6, **options), (F32,)).build(F32)
    scale = 10.0 ** torch.linspace(-12, 12, 34)[:, None]
    args[4:6] = [gradient * scale for gradient in args[4:6]]
    results = _flat(spec.lstm_backward(*args, backend="triton"))
    truth, naive = _flat(reference.lstm_backward(*map(widen, args))), _flat(reference.lstm_backward(*args))
    for index, (result, true, base) in enumerate(zip(results, truth, naive, strict=True)):
        assert_within_baseline(result, true, base, f"output {index}")
    for states in (1, 2):
        small = [values[states][:, :4] for values in (results, truth, naive)]
        assert_within_baseline(*small, f"output {states}, rows of tiny gradients")


def _flat(results):
    return [item for result in results for item in (result if isinstance(result, list | tuple) else [result])]
