"""Random programs never crash the process, never raise, and never meet a fault of the library itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "seconds"), [(1, 5), (8, 8)])
def test_random_programs(threads, seconds):
    command = [sys.executable, str(FUZZ), "20", str(seconds), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    calls, refused = map(int, re.findall(r"\d+", done.stdout)[:2])
    assert calls > 2000
    assert 0.2 < refused / calls < 0.8, "both right and wrong calls are to be met"
