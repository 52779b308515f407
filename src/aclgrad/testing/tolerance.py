"""The tolerance rule: no hand-picked numbers.

Truth is the formula in float64. A result may be as far from the truth as twice a naive run of the same formula in the
result's own dtype is, plus a few ulp of the result's scale; in the largest error and in the root mean square.

A float64 result has no better truth than a float64 run, whose own error must not count against it: there the naive run
is made in float32, and its error is scaled to float64's precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .precision.measures import max_error, max_true, rms_error, rms_true
from .precision.statistics import Statistics, flat, measure

BASELINE_FACTOR = 2.0
FEW_ULP = 4.0


@dataclass(frozen=True)
class Verdict:
    """Errors of a result, what the rule allows, and the largest error in ulp of the result's scale."""

    max_error: float
    max_allowed: float
    rms_error: float
    rms_allowed: float
    ulp: float
    misplaced: int  # elements that are NaN or infinite where the truth is not, or the reverse

    @property
    def ok(self) -> bool:
        """True if the rule holds."""
        return self.misplaced == 0 and self.max_error <= self.max_allowed and self.rms_error <= self.rms_allowed

    def __str__(self) -> str:
        return (
            f"max error {self.max_error:.3g} (allowed {self.max_allowed:.3g}), "
            f"rms error {self.rms_error:.3g} (allowed {self.rms_allowed:.3g}), "
            f"{self.ulp:.2f} ulp of scale, {self.misplaced} misplaced NaN or Inf"
        )


def naive_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which the naive run for a result of `dtype` is made."""
    return torch.float32 if dtype == torch.float64 else dtype


def judge(result: Tensor, truth: Tensor, naive: Tensor, precision: torch.dtype | None = None) -> Verdict:
    """Compare a result with the truth (float64) in the light of a naive run (in `naive_dtype` of the result's).

    Integers must be equal. `precision` is the dtype to count ulp in, where the contract rounds to a coarser one than
    the result's on the way.
    """
    if not result.is_floating_point():
        wrong = int((result != truth).sum())
        return Verdict(float(wrong > 0), 0.0, 0.0, 0.0, 0.0, wrong)
    true = flat(truth.double())
    found, plain = (measure(flat(each), true, each.numel(), each.dtype)[0] for each in (result, naive))
    return verdict(found, plain, precision or result.dtype, naive.dtype)


def verdict(found: Statistics, naive: Statistics, precision: torch.dtype, naive_precision: torch.dtype) -> Verdict:
    """The rule, from the metrics of a result and of a naive run, and the dtypes that each of them counts ulp in."""
    eps = torch.finfo(precision).eps
    factor = BASELINE_FACTOR * eps / torch.finfo(naive_precision).eps
    largest = found[max_true()]
    return Verdict(
        max_error=found[max_error()],
        max_allowed=factor * naive[max_error()] + FEW_ULP * eps * largest,
        rms_error=found[rms_error()],
        rms_allowed=factor * naive[rms_error()] + FEW_ULP * eps * found[rms_true()],
        ulp=found[max_error()] / (eps * largest) if largest else 0.0,
        misplaced=found.misplaced,
    )


def assert_within_baseline(
    result: Tensor, truth: Tensor, naive: Tensor, label: str = "result", precision: torch.dtype | None = None
) -> Verdict:
    """Raise AssertionError unless the rule holds; the message says by how much it does not."""
    if result.shape != truth.shape:
        raise AssertionError(f"{label}: shape {tuple(result.shape)}, expected {tuple(truth.shape)}")
    verdict = judge(result, truth, naive, precision)
    if not verdict.ok:
        raise AssertionError(f"{label}: {verdict}")
    return verdict
