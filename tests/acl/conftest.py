"""Every test starts with a runtime that nobody has initialised, and leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aclgrad import acl
from aclgrad.frontends.acl import blocks, boundary, devices, engine_cpu, engines, findings, ordering
from aclgrad.frontends.acl.handles import Table


@pytest.fixture(autouse=True)
def _pristine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ACLGRAD_STRICT", raising=False)
    monkeypatch.delenv("ACLGRAD_DEVICE", raising=False)
    monkeypatch.setattr(boundary, "_warned", set())
    _clear()
    yield
    _clear()


@pytest.fixture
def device() -> None:
    """Device 0 is current."""
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is checked; nothing is initialised."""
    monkeypatch.setenv("ACLGRAD_STRICT", "1")
    assert findings.read_mode() is None


@pytest.fixture
def checked(strict: None, device: None) -> None:
    """The program is checked, and device 0 is current."""


@pytest.fixture
def stream(device: None) -> int:
    handle, ret = acl.rt.create_stream()
    assert ret == 0
    return handle


def _clear() -> None:
    findings.strict = False
    acl.finalize()
    for context in devices.CONTEXTS.values():
        context.release()
    devices._primaries.clear()
    devices._set_counts.clear()
    devices._thread.__dict__.clear()
    for heap in (blocks.DEVICE, blocks.HOST):
        for address in [address for address, block in heap._blocks.items() if block.alive]:
            heap.free(address)
    engines.current = engine_cpu.CpuEngine()
    for places in (blocks.DEVICE._origins, blocks.HOST._origins, *(table.origins for table in Table._tables)):
        places.clear()
    for memory in (findings._entries, findings._reported, ordering._lines, ordering._host, ordering._abandoned):
        memory.clear()
    acl.get_recent_err_msg()
