"""Everything in this folder needs a GPU (`conftest.py` of the repository marks it so)."""

import sys
from pathlib import Path

import pytest
import torch

for folder in ("conformance", "nn", "ranks"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))


@pytest.fixture
def cuda():
    """Tensors are made on the GPU, the same ones every time."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        yield torch.device("cuda", torch.cuda.current_device())
