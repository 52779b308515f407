"""The LSTM with a Triton whose Gluon we do not know: plain Triton kernels do the work, to the same accuracy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
AS_UNKNOWN = """
import sys, pytest, triton
triton.__version__ = "3.999.0"
from aclgrad.gpu import launch
assert not launch.KNOWN
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["test_gpu_lstm.py", "test_gpu_lstm_forward.py"])
def test_accurate_without_gluon(name, dtype):
    """A process for each dtype, for most of the time goes into compilation."""
    options = (
        "-m",
        "gpu",
        "-k",
        f"every_way and torch.{dtype}",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:benchmark",
    )
    done = subprocess.run(
        [sys.executable, "-c", AS_UNKNOWN, str(FOLDER / name), *options],
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
