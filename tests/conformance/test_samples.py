"""Random calls, others each day: right on poisoned memory, and the same bits wherever their operands lie."""

import datetime
import os
import random

import pytest
import torch
from matrix import OPERATORS, same

from aclgrad.core.memory import tensors_in
from aclgrad.testing import poisoned_memory, verdicts
from aclgrad.testing.samples import sample
from aclgrad.testing.verdicts import own

SEED = int(os.environ.get("ACLGRAD_TEST_SEED", datetime.date.today().toordinal()))
SAMPLES = 6


def eps(dtype):
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def coarsest(call):
    """Of all dtypes in which a call has numbers."""
    return max((tensor.dtype for tensor in tensors_in([*call.args, call.out])), key=eps)


def as_derived(call, written):
    """Results in finer memory than is usual, rounded to what is: sums of float32 are exact to float32, not beyond."""

    def rounded(found, meta):
        if isinstance(found, list):
            return [rounded(*pair) for pair in zip(found, meta, strict=True)]
        if found is None or not found.is_floating_point():
            return found
        usual = meta.dtype if call.dtype == torch.float64 else torch.promote_types(call.dtype, torch.float32)
        return found.to(max(found.dtype, usual, key=eps))

    _, metas = call.operator.judge(call.args)
    return [*(rounded(*pair) for pair in zip(written, metas, strict=False)), *written[len(metas) :]]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
def test_random_calls(operator):
    rng = random.Random(f"{operator.spec.name} {SEED}")
    for _ in range(SAMPLES):
        call = sample(operator, rng)
        tensors = [(str(t.dtype)[6:], tuple(t.shape), t.stride()) for t in tensors_in([*call.args, call.out])]
        label = f"ACLGRAD_TEST_SEED={SEED}: {tensors}"
        plain = call.plainly()
        before = own(operator.spec, plain.args)
        with poisoned_memory():
            written, expected = as_derived(call, call("cpu")), as_derived(call, plain("cpu"))
        same(written, expected, f"{label}, beside contiguous tensors")
        if call.consistent and not any(t.dtype == torch.float64 for t in tensors_in(call.args)):  # no finer truth
            for name, verdict in verdicts(operator.spec, before, written, coarsest(call)):
                assert verdict.ok, f"{name}: {verdict}; {label}"
