"""On a GPU too memory grows by what is kept and by nothing else: every operator and module, call after call."""

import pytest
import torch
from growth import MEASURES, Meter

from aclgrad.core.memory import KEPT_WORKSPACE

SLACK = 2 * KEPT_WORKSPACE  # bytes: a workspace, and the segments of 20 MiB that torch's allocator takes
PER_TENSOR = 512  # it rounds up to this


def trim():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_what_is_held_is_what_is_kept_and_comes_back(measure):
    with torch.device("cuda"):
        found = measure(Meter(torch.cuda.memory_reserved, trim), "triton")
    assert found.held >= found.kept - SLACK, f"the meter does not see what is kept: {found}"
    assert found.held <= found.kept + PER_TENSOR * found.tensors + SLACK, f"more is held than kept: {found}"
    assert found.left <= SLACK, f"what was freed has not come back: {found}"
