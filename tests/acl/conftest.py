"""Every test starts with a runtime that nobody has initialised, and leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aclgrad import acl
from aclgrad.frontends.acl import devices


@pytest.fixture(autouse=True)
def _pristine() -> Iterator[None]:
    _clear()
    yield
    _clear()


@pytest.fixture
def device() -> None:
    """Device 0 is current."""
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0


@pytest.fixture
def stream(device: None) -> int:
    handle, ret = acl.rt.create_stream()
    assert ret == 0
    return handle


def _clear() -> None:
    acl.finalize()
    for context in devices.CONTEXTS.values():
        context.release()
    devices._primaries.clear()
    devices._set_counts.clear()
    devices._thread.__dict__.clear()
    acl.get_recent_err_msg()
