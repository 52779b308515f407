"""The ops and modules on DTensors, on four ranks."""

import op_checks
import pytest


@pytest.mark.parametrize(
    "check",
    [
        op_checks.every_op, op_checks.other_placements, op_checks.refused, op_checks.modules,
        pytest.param(op_checks.compiled, marks=pytest.mark.slow),
    ],
    ids=lambda check: getattr(check, "__name__", None),
)  # fmt: skip
def test_on_four_ranks(check, ranks):
    ranks(check)
