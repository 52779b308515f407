import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from aclnn_device import Device
from matrix import ACLNN, LARGE

from aclgrad.testing import program
from aclgrad.testing.cases import SMOKE

INTERPRETED = not torch.cuda.is_available()


def pytest_collection_modifyitems(config, items):
    """Leave out what the Triton kernels do not run: float64, whose refusal is a test of its own.

    The interpreter does not run what is large either.
    What is interpreted in a dtype beyond its first is slow, but for the accuracy of smoke cases.
    """
    left_out = {item for item in items if _not_for_triton(_triton_params(item))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if INTERPRETED and _is_another_dtype(_triton_params(item)):
            item.add_marker(pytest.mark.slow)


def _triton_params(item):
    """The parameters of a test of the Triton kernels, else none."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params if "triton" in (params.get("backend"), params.get("kernels")) else {}


def _not_for_triton(params) -> bool:
    too_large = INTERPRETED and str(params.get("case")) in LARGE
    return bool(params) and (params.get("dtype") == torch.float64 or too_large)


def _is_another_dtype(params) -> bool:
    case = params.get("case")
    if case is None or params["dtype"] == case.dtypes[0]:
        return False
    return "kernels" in params or SMOKE not in case.tags


@pytest.fixture
def running():
    with program.program() as running:
        yield running


@pytest.fixture(params=ACLNN, ids=lambda operator: operator.spec.name)
def device(request, running):
    return Device(running, request.param)
