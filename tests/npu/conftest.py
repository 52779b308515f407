import pytest

from aclgrad import npu


@pytest.fixture(scope="module", autouse=True)
def _installed():
    """The device is there for a file of tests, and gone for all others: what stays would be seen by them."""
    npu.install()
    yield
    npu.uninstall()
