"""Bits do not depend on the process: neither on its addresses and hashes nor on what it compiled or loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from digests import FIRST_DTYPE, digests

from aclgrad.testing.cases import SMOKE

PROGRAM = Path(__file__).with_name("digests.py")
BACKENDS = [
    pytest.param("cpu", [FIRST_DTYPE, SMOKE], id="cpu"),
    pytest.param("cpu", [SMOKE], id="cpu in all dtypes", marks=pytest.mark.slow),
    pytest.param("triton", [], id="triton", marks=pytest.mark.needs_gpu),
]


@pytest.mark.parametrize(("backend", "tags"), BACKENDS)
def test_another_process_gives_the_same_bits(backend, tags):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), backend, *tags],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    there = json.loads(done.stdout)
    assert there == digests(backend, *tags)
    assert len(set(there.values())) > len(there) / 2  # the digests tell results apart
