import pytest


@pytest.fixture(autouse=True, scope="module")
def _all_threads(all_threads):
    """What kernels are made of is tested as it is used: on several threads."""
