import sys
from pathlib import Path

import pytest

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "nn"):
    sys.path.insert(0, str(folder))


@pytest.fixture(scope="module")
def ranks():
    """Four processes that form a group, for all tests of a file."""
    from aclgrad.testing.processes import Processes

    with Processes(4) as processes:
        yield processes
