"""On a GPU too memory grows by what is kept and by nothing else: every operator and module, call after call."""

import pytest
import torch
from growth import KEYS, Meter, all_growths

from aclgrad.core.memory import KEPT_WORKSPACE

SLACK = 2 * KEPT_WORKSPACE  # bytes: a workspace, and the segments of 20 MiB that torch's allocator takes
PER_TENSOR = 512  # it rounds up to this


@pytest.fixture(scope="module")
def measured():
    def trim():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    with torch.device("cuda"):
        return all_growths(Meter(torch.cuda.memory_reserved, trim), "triton")


@pytest.mark.parametrize("key", KEYS)
def test_what_is_held_is_what_is_kept(measured, key):
    found = measured[key]
    assert found.kept - SLACK <= found.held <= found.kept + PER_TENSOR * found.tensors + SLACK, found


@pytest.mark.parametrize("key", KEYS)
def test_what_is_freed_comes_back(measured, key):
    assert measured[key].left <= SLACK, measured[key]
