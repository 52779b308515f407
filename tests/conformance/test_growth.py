"""Memory grows by what is kept and by nothing else: every operator and module, call after call."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from growth import COMPARED, KEYS, MODES, Growth

PROGRAM = Path(__file__).with_name("growth.py")
SLACK = 2 << 20  # bytes: the workspace that a thread keeps, and what Python and torch keep for themselves
PER_TENSOR = 3 << 10  # the tensor itself, with its share of the graph

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")


@pytest.fixture(scope="module")
def measured():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True)
    return {name: Growth(*numbers) for name, numbers in json.loads(done.stdout).items()}


@pytest.mark.parametrize("key", KEYS)
def test_what_is_held_is_what_is_kept(measured, key):
    found = measured[key]
    assert found.held <= found.kept + PER_TENSOR * found.tensors + SLACK, found


@pytest.mark.parametrize("key", KEYS)
def test_what_is_freed_comes_back(measured, key):
    assert measured[key].left <= SLACK, measured[key]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COMPARED)
def test_no_more_is_held_than_by_torchs_twin(measured, name, mode):
    ours, torchs = measured[f"{name} {mode}"], measured[f"{name} {mode} by torch"]
    assert ours.held <= torchs.held + SLACK, (ours, torchs)


def test_something_was_measured(measured):
    """So that a meter or a count that always reads nothing is found out."""
    assert sum(measured[key].kept for key in KEYS) > 100 * SLACK
    for key in KEYS:
        assert measured[key].held >= measured[key].kept - SLACK, key
