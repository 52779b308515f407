"""DTensors, parallel plans, FSDP2 and DDP on four ranks."""

import pytest
import tensor_checks


@pytest.mark.parametrize(
    "check",
    [
        tensor_checks.sharded_weights, tensor_checks.a_partial_gradient, tensor_checks.refused,
        tensor_checks.a_parallel_plan, tensor_checks.sharded_models, tensor_checks.both_at_once,
    ],
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_on_four_ranks(check, ranks):
    ranks(check)
