import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from aclnn_device import Device
from matrix import ACLNN

from aclgrad.testing import program

TOO_LARGE_TO_INTERPRET = ("many_rows", "several_threads")
"""Cases whose kernels take Triton's interpreter minutes; smaller ones go the same ways."""


def pytest_collection_modifyitems(config, items):
    """Leave out what the Triton kernels do not run: float64, whose refusal is a test of its own, and the above."""
    left_out = [item for item in items if _not_for_triton(getattr(item, "callspec", None))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _not_for_triton(callspec) -> bool:
    params = callspec.params if callspec else {}
    if "triton" not in (params.get("backend"), params.get("kernels")):
        return False
    interpreted = not torch.cuda.is_available()
    return params.get("dtype") == torch.float64 or (interpreted and str(params.get("case")) in TOO_LARGE_TO_INTERPRET)


@pytest.fixture
def running():
    with program.program() as running:
        yield running


@pytest.fixture(params=ACLNN, ids=lambda operator: operator.spec.name)
def device(request, running):
    return Device(running, request.param)
