import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))


def pytest_collection_modifyitems(items):
    """Everything in this folder needs a GPU."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def cuda():
    """Tensors are made on the GPU, the same ones every time."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        yield torch.device("cuda", torch.cuda.current_device())
