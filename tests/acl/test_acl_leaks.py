"""What a checked run finds left behind at the end, every kind by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from acl_helpers import PHASE_ONE, create, fill, finish, found, launch, malloc, new_stream

from aclgrad import acl, aclnn
from aclgrad.frontends.acl import devices, meta, ordering, tensors
from aclgrad.frontends.acl.findings import Kind

LEAKS = {
    Kind.DEVICE_MEMORY_LEAKED: lambda: malloc(100),
    Kind.HOST_MEMORY_LEAKED: lambda: acl.rt.malloc_host(50),
    Kind.TENSOR_LEAKED: lambda: create(),
    Kind.SCALAR_LEAKED: lambda: meta.aclCreateScalar(1, 3),
    Kind.ARRAY_LEAKED: lambda: meta.aclCreateBoolArray([True], 1),
    Kind.LIST_LEAKED: lambda: meta.aclCreateTensorList([create()], 1),
    Kind.BUFFER_LEAKED: lambda: acl.create_data_buffer(0, 0),
    Kind.STREAM_LEAKED: lambda: acl.rt.create_stream(),
    Kind.EVENT_LEAKED: lambda: acl.rt.create_event(),
    Kind.CONTEXT_LEAKED: lambda: acl.rt.create_context(0),
    Kind.EXECUTOR_NEVER_RUN: lambda: PHASE_ONE(*[torch.ones(2)] * 2, torch.ones(2)),
    Kind.EXECUTOR_LEAKED: lambda: aclnn.aclSetAclOpExecutorRepeatable(
        PHASE_ONE(*[torch.ones(2)] * 2, torch.ones(2))[1]
    ),
    Kind.NEVER_SYNCHRONISED: lambda: acl.rt.memset_async(BLOCK, 8, 0, 8, 0),
}
BLOCK = 0


@pytest.fixture
def block(checked, monkeypatch):
    """Device memory that is freed before the program ends."""
    pointer = malloc(8)
    monkeypatch.setitem(globals(), "BLOCK", pointer)
    findings_of = blocks_origins()
    findings_of.pop(pointer)
    return pointer


def blocks_origins() -> dict[int, object]:
    from aclgrad.frontends.acl.blocks import DEVICE

    return DEVICE._origins


def test_every_leak_has_a_test():
    special = {Kind.DEVICE_NOT_RESET, Kind.NOT_FINALISED}
    assert set(LEAKS) | special == {kind for kind in Kind if not kind.is_mistake}


@pytest.mark.parametrize("kind", LEAKS, ids=lambda kind: kind.title)
def test_a_leak_is_found_once(block, kind, capfd):
    LEAKS[kind](), LEAKS[kind]()
    assert found() == {}
    assert finish() == {kind.title: 2}
    places = {finding.place for finding in acl.findings() if finding.kind is kind}
    assert all(Path(__file__).name in place or "acl_helpers.py" in place for place in places)
    assert kind.title in capfd.readouterr().err
    assert acl.init() == acl.finalize() == 0
    assert acl.findings() == ()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", LEAKS, ids=lambda kind: kind.title)
def test_no_leak_is_looked_for_otherwise(device, kind, capfd, monkeypatch):
    monkeypatch.setitem(globals(), "BLOCK", malloc(8))
    LEAKS[kind]()
    assert acl.finalize() == 0
    assert acl.findings() == ()
    assert capfd.readouterr().err == ""
    assert not blocks_origins()
    assert not any(table.origins for table in (tensors.TENSORS, devices.STREAMS))
    assert not ordering._lines


def test_a_leak_has_its_size(checked):
    malloc(100), acl.rt.malloc_host(50)
    acl.finalize()
    sizes = {finding.kind: finding.nbytes for finding in acl.findings()}
    assert sizes[Kind.DEVICE_MEMORY_LEAKED] == 100
    assert sizes[Kind.HOST_MEMORY_LEAKED] == 50


def test_streams_left_to_reset_are_leaks(checked):
    stream = new_stream()
    assert fill(malloc(64), stream) == 0
    assert acl.rt.reset_device(0) == 0
    assert acl.finalize() == 0
    assert found() == {"stream-leaked": 1, "never-synchronised": 1, "device-memory-leaked": 1}
    assert not ordering._lines


def test_what_is_released_is_forgotten(checked):
    assert acl.rt.free(malloc(8)) == meta.aclDestroyTensor(create()) == 0
    assert not blocks_origins()
    assert not tensors.TENSORS.origins


def test_members_of_a_leaked_list_are_not_counted_again(checked):
    meta.aclCreateTensorList([create() for _ in range(3)], 3)
    assert finish() == {"list-leaked": 1}


def test_an_executor_that_ran_is_no_leak(checked):
    stream, operands = new_stream(), [torch.ones(2) for _ in range(3)]
    assert launch(tuple(operands), stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    _, executor, _ = PHASE_ONE(*operands)
    assert aclnn.aclDestroyAclOpExecutor(executor) == 0
    acl.rt.destroy_stream(stream)
    assert finish() == {}


def test_finalize_reference_reports_with_the_last_one(checked):
    acl.init()
    malloc(8)
    assert acl.finalize_reference() == (1, 0)
    assert found() == {}
    assert acl.finalize_reference() == (0, 0)
    assert found() == {"device-memory-leaked": 1, "device-not-reset": 1}
