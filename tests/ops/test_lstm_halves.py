"""float32 products made of half-precision ones, and the steps of the recurrence that use them."""

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.backends import widen
from aclgrad.core.spec import F16, F32
from aclgrad.gpu.launch import INTERPRETING
from aclgrad.ops.lstm import cases, reference, spec
from aclgrad.ops.lstm.triton.fp16_split.products import multiply_parts
from aclgrad.ops.lstm.triton.recurrence.per_step.split_products import ALIGN, LONGEST, MOST_PIECES, PIECE, pieces
from aclgrad.testing import assert_within_baseline
from aclgrad.testing.cases import Case

interpreted = pytest.mark.skipif(not INTERPRETING, reason="needs Triton's interpreter: TRITON_INTERPRET=1")


@pytest.mark.parametrize("depth", [8, 80, 512, 2048, 4096, 4096 + 8, 3 * 1024, 16384])
def test_pieces_are_aligned_and_short_enough(depth):
    count = pieces(depth)
    assert count is not None and count <= MOST_PIECES
    assert (
        depth % count == 0
        and depth // count % ALIGN == 0
        and depth // count <= (LONGEST if depth > MOST_PIECES * PIECE else PIECE)
    )


@pytest.mark.parametrize("depth", [1, 4, 100, 4 * 1001, 64 * 1024])
def test_a_depth_without_good_pieces_is_not_cut(depth):
    assert pieces(depth) is None


@interpreted
@pytest.mark.parametrize("shares", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("depth", [0, 7, 30, 1025])
def test_shares_of_a_product_add_up_to_it(depth, parts, shares):
    torch.manual_seed(0)
    a, b = torch.randn(depth, 9, dtype=torch.float64), torch.randn(depth, 11, dtype=torch.float64)
    shape = (9, 11) if shares is None else (shares, 9, 11)
    out = torch.full(shape, torch.nan)
    multiply_parts([part.t() for part in _parts(a, parts)], _parts(b, parts), out)
    exact = a.t() @ b
    total = out if shares is None else out.sum(0)
    assert float((total - exact).norm()) <= (3e-6 if parts == 2 else 3e-3) * max(float(exact.norm()), 1e-30)


def _parts(matrix, count):
    high = matrix.to(F16)
    return [high, (matrix - high).to(F16)][:count]


@interpreted
@pytest.mark.parametrize("options", [{}, {"directions": 2, "layers": 2}, {"lengths": (4,) * 20 + (2,) * 14}], ids=str)
def test_steps_in_halves_are_as_accurate_as_a_naive_run(options):
    """A batch of 34 rows whose gradients differ in size by many orders of magnitude."""
    args = Case("halves", cases._lstm(4, 34, 3, 6, **options), (F32,)).build(F32)
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
