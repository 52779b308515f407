"""No GPU kernel reads or writes where it may not: NVIDIA's compute-sanitizer watches the calls of `sanitized.py`.

That takes minutes, so it has to be asked for: ACLGRAD_SANITIZE=1.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sanitized.py")
SANITIZER = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
SHARES = 8
REFUSALS = ("Device not supported", "Target application terminated before first instrumented API call")
FOUND = 9


@pytest.mark.slow
@pytest.mark.skipif("ACLGRAD_SANITIZE" not in os.environ, reason="takes minutes: set ACLGRAD_SANITIZE=1")
@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("share", range(SHARES))
def test_every_access_is_allowed(share):
    command = [SANITIZER, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", str(FOUND)]
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM), str(share), str(SHARES)],
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if any(refusal in said for refusal in REFUSALS):
        pytest.skip("compute-sanitizer cannot watch this device")
    assert done.returncode == 0 and "ERROR SUMMARY: 0 errors" in said, said[-4000:]
