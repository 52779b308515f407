"""Memory grows by what is kept and by nothing else: every operator and module, call after call."""

import json
from pathlib import Path

import pytest
from growth import COMPARED, KEYS, MODES, TWINS, Growth

PROGRAM = Path(__file__).with_name("growth.py")
SLACK = 2 << 20  # bytes: the workspace that a thread keeps, and what Python and torch keep for themselves
BY_TORCH = " by torch"
PER_TENSOR = 3 << 10  # the tensor itself, with its share of the graph

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")


QUICK = (
    "lstm same",
    "lstm_backward same",
    "LSTM inferred",
    "LSTM differentiated",
    "LinearCrossEntropyLoss differentiated",
)
"""What is measured always: an LSTM's workspace is the largest, and the head holds gradients. All others are slow."""


MEASURED = [pytest.param(key, marks=[] if key in QUICK else [pytest.mark.slow]) for key in KEYS]
PAIRS = [
    pytest.param(name, mode, marks=[] if f"{name} {mode}" in QUICK else [pytest.mark.slow])
    for name in COMPARED
    for mode in MODES
]


@pytest.fixture(scope="module")
def measured(python, request):
    """What the tests that run ask for, measured in one process, always in the same order."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    params = [item.callspec.params for item in items]
    wanted = {given["key"] for given in params if "key" in given}
    wanted |= {f"{given['name']} {given['mode']}{by}" for given in params if "mode" in given for by in ("", BY_TORCH)}
    keys = [key for key in (*KEYS, *TWINS) if key in wanted]
    done = python(PROGRAM, *keys)
    assert done.returncode == 0, done.stderr
    return {name: Growth(*numbers) for name, numbers in json.loads(done.stdout).items()}


@pytest.mark.parametrize("key", MEASURED)
def test_what_is_held_is_what_is_kept(measured, key):
    found = measured[key]
    assert found.held >= found.kept - SLACK, "the meter does not see what is kept"
    assert found.held <= found.kept + PER_TENSOR * found.tensors + SLACK, found


@pytest.mark.parametrize("key", MEASURED)
def test_what_is_freed_comes_back(measured, key):
    assert measured[key].left <= SLACK, measured[key]


@pytest.mark.parametrize(("name", "mode"), PAIRS)
def test_no_more_is_held_than_by_torchs_twin(measured, name, mode):
    ours, torchs = measured[f"{name} {mode}"], measured[f"{name} {mode} by torch"]
    assert ours.held <= torchs.held + SLACK, (ours, torchs)
