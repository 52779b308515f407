"""Triton kernels run everywhere: on a GPU where there is one, else in Triton's interpreter.

What the interpreter cannot run, all of `tests/gpu` and what is marked `needs_gpu`, is selected by `-m gpu` as well and
left out without a GPU, which the summary says in one line.
"""

import os
from pathlib import Path

import pytest
import torch

GPU = torch.cuda.is_available()
NEED_GPU = Path(__file__).parent / "tests" / "gpu"
LEFT_OUT = "There is no GPU here: the tests that need one are left out."
collect_ignore_glob = ["tests/*/conftest.py"]  # they have no examples, and to pytest all of them are one module

if not GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config, items):
    needy = {item for item in items if item.get_closest_marker("needs_gpu") or NEED_GPU in item.path.parents}
    for item in needy:
        item.add_marker(pytest.mark.gpu)
    if needy and not GPU:
        config.hook.pytest_deselected(items=list(needy))
        items[:] = [item for item in items if item not in needy]


def pytest_terminal_summary(terminalreporter):
    if not GPU:
        terminalreporter.write_line(LEFT_OUT)
