"""Random calls, others in every run, on a CPU and on a GPU where there is one.

`ACLGRAD_TEST_SEED` repeats a run, `ACLGRAD_TEST_DRAW` one draw of it; a failure says both.
"""

import sys
from pathlib import Path

import pytest
import torch

for folder in ("conformance", "nn", "ops"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from draws import DEVICE  # noqa: E402  it lies here


def pytest_collection_modifyitems(items):
    """They are for both."""
    drawn = {path for path in {item.path for item in items} if Path(__file__).parent in path.parents}
    for item in items:
        if item.path in drawn:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def device():
    """Where tensors are made; torch's own float32 is not TF32 by cuDNN."""
    with torch.device(DEVICE), torch.backends.cudnn.flags(enabled=False):
        yield DEVICE
