import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from aclnn_device import Device
from matrix import ACLNN, LARGE

from aclgrad.testing import program
from aclgrad.testing.cases import SMOKE, Case, suite

GPU = torch.cuda.is_available()


def pytest_collection_modifyitems(config, items):
    """Leave out what the Triton kernels do not run: float64, whose refusal is a test of its own.

    The interpreter does not run what is large either. A dtype beyond a case's first is a kernel of its own, to be
    compiled or interpreted, and slow; but each operator's first smoke case is called in every dtype. Interpreted in all
    layouts are these first cases; the others are slow. So are edge cases of an LSTM's variants, whose GPU kernels are
    the plain ones'.
    """
    left_out = {item for item in items if _is_for_triton(item) and _cannot_run(_params(item))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        params = _params(item)
        if _is_another_dtype(params) or _is_another_case_of_layouts(params) or _is_edge_of_a_variant(params):
            item.add_marker(pytest.mark.slow)


def _params(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


def _is_for_triton(item) -> bool:
    return "triton" in (_params(item).get("backend"), _params(item).get("kernels"))


def _cannot_run(params) -> bool:
    too_large = not GPU and str(params.get("case")) in LARGE
    return params.get("dtype") == torch.float64 or too_large


def _is_another_dtype(params) -> bool:
    case, dtype = params.get("case"), params.get("dtype")
    if GPU or not isinstance(case, Case) or dtype in (None, case.dtypes[0]):
        return False
    return "backend" not in params or case is not _first_case(params["operator"])


def _is_another_case_of_layouts(params) -> bool:
    return not GPU and params.get("kernels") == "triton" and params["case"] is not _first_case(params["operator"])


def _is_edge_of_a_variant(params) -> bool:
    if GPU or params.get("backend") != "triton" or not isinstance(params.get("case"), Case):
        return False
    case, spec = params["case"], params["operator"].spec
    sizes = SMOKE in case.tags or case.name == "past_every_block"
    return spec.package.endswith(".lstm") and not spec.aclnn and not sizes


def _first_case(operator) -> Case:
    return next(case for case in suite(operator.spec).cases if SMOKE in case.tags)


@pytest.fixture
def running():
    with program.program() as running:
        yield running


@pytest.fixture(params=ACLNN, ids=lambda operator: operator.spec.name)
def device(request, running):
    return Device(running, request.param)
