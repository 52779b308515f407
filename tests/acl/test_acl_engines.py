"""Which engine is chosen, and the CUDA engine over a stand-in for torch.cuda whose memory is the host's."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from acl_helpers import D2D, D2H, DEFAULT, H2D, create, download, malloc, upload

from aclgrad import acl, aclnn
from aclgrad.frontends.acl import devices, engines
from aclgrad.frontends.acl.engine_cpu import CpuEngine
from aclgrad.frontends.acl.engine_cuda import CudaEngine


class FakeStream:
    def __init__(self, cuda, name):
        self.cuda, self.name, self.busy, self.fault = cuda, name, False, None

    def query(self):
        self._raise()
        return not self.busy

    def synchronize(self):
        self.cuda.log.append(("synchronize", self.name))
        self.busy = False
        self._raise()

    def wait_event(self, event):
        self.cuda.log.append(("wait", self.name, event.stream.name))

    def _raise(self):
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault


class FakeEvent:
    def __init__(self, cuda, enable_timing):
        assert enable_timing
        self.cuda, self.stream = cuda, None

    def record(self, stream):
        self.stream, self.time = stream, len(self.cuda.log)
        self.cuda.log.append(("record", stream.name))

    def query(self):
        return not self.stream.busy

    def synchronize(self):
        self.cuda.log.append(("event", self.stream.name))

    def elapsed_time(self, end):
        return float(end.time - self.time)


class FakeCuda:
    """Notes who did what on which stream; everything is done at once."""

    def __init__(self):
        self.log = []
        self.default = FakeStream(self, "default")
        self.current = self.default
        self.made = []

    def device_count(self):
        return 1

    def default_stream(self, device=None):
        return self.default

    def current_stream(self):
        return self.current

    def Stream(self, device):
        self.made.append(FakeStream(self, f"stream{len(self.made)}"))
        return self.made[-1]

    def Event(self, enable_timing):
        return FakeEvent(self, enable_timing)

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        self.log.append(("enter", stream.name))
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, device):
        self.log.append(("device", device))

    def get_device_properties(self, device):
        return SimpleNamespace(total_memory=1 << 20)

    def mem_get_info(self, device):
        return 1 << 19, 1 << 20

    def memory_reserved(self, device):
        return 100

    def memory_allocated(self, device):
        return 40


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    engine = CudaEngine(fake, "cpu")
    monkeypatch.setenv("ACLGRAD_DEVICE", "cuda")
    monkeypatch.setattr(engines, "current", engine)
    assert acl.init() == acl.rt.set_device(0) == 0
    assert engines.current is engine
    yield fake
    for context in devices.CONTEXTS.values():
        context.release()


def test_the_processor_is_the_default(device):
    assert isinstance(engines.current, CpuEngine)
    assert acl.rt.get_device_count() == (1, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setenv("ACLGRAD_DEVICE", "cuda")
    assert acl.init() == acl.rt.set_device(0) == 207004
    assert "ACLGRAD_DEVICE is 'cuda', but torch finds no CUDA device" in acl.get_recent_err_msg()
    assert acl.rt.get_device_count() == (0, 207004)
    assert acl.rt.create_context(0) == (0, 207004)
    assert acl.finalize() == 100037


def test_an_unknown_engine_is_refused(monkeypatch):
    monkeypatch.setenv("ACLGRAD_DEVICE", "npu")
    assert acl.init() == 100000
    assert "ACLGRAD_DEVICE is 'npu', expected cpu or cuda" in acl.get_recent_err_msg()
    monkeypatch.setenv("ACLGRAD_DEVICE", "")
    assert acl.init() == 0


def test_the_engine_does_not_change_under_living_memory(device, monkeypatch):
    pointer = malloc(8)
    acl.rt.reset_device(0)
    monkeypatch.setenv("ACLGRAD_DEVICE", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert acl.rt.set_device(0) == 100000
    assert "alive" in acl.get_recent_err_msg()
    acl.rt.free(pointer)


def test_the_engine_changes_back(cuda, monkeypatch):
    assert acl.rt.reset_device(0) == acl.finalize() == 0
    monkeypatch.setenv("ACLGRAD_DEVICE", "cpu")
    assert acl.init() == 0
    assert isinstance(engines.current, CpuEngine)


def test_copies_in_every_direction(cuda):
    data = np.random.default_rng(0).integers(0, 256, 1000, np.uint8)
    first, second, host = upload(data), malloc(1000), acl.rt.malloc_host(1000)[0]
    assert acl.rt.memcpy(second, 1000, first, 1000, D2D) == 0
    assert download(second, 1000) == data.tobytes()
    assert acl.rt.memcpy(host, 1000, second, 1000, DEFAULT) == 0
    assert acl.util.ptr_to_bytes(host, 1000) == data.tobytes()
    assert acl.rt.memset(second + 3, 10, 0x1AB, 5) == acl.rt.memset(host, 8, 7, 8) == 0
    assert download(second, 8) == data[:3].tobytes() + b"\xab" * 5
    assert cuda.log[-1] == ("synchronize", "default"), "a synchronous copy returns when it is done"


def test_reads_past_the_end_and_overlaps(cuda):
    pointer = upload(np.arange(32, dtype=np.uint8))
    assert download(pointer + 30, 4) == bytes([30, 31, 0, 0])
    assert acl.rt.memcpy(pointer + 4, 28, pointer, 28, D2D) == 0
    assert download(pointer, 32) == bytes([0, 1, 2, 3, *range(28)])


def test_work_is_enqueued_on_its_stream(cuda):
    stream, _ = acl.rt.create_stream()
    a, b = malloc(64), malloc(64)
    cuda.log.clear()
    assert acl.rt.memset_async(a, 64, 5, 64, stream) == acl.rt.memcpy_async(b, 64, a, 64, D2D, stream) == 0
    assert acl.rt.memset_async(b, 64, 6, 1, 0) == 0
    assert [entry for entry in cuda.log if entry[0] == "enter"] == [("enter", "stream0")] * 2 + [("enter", "default")]
    assert acl.rt.synchronize_stream(stream) == 0
    assert cuda.log[-1] == ("synchronize", "stream0")
    assert download(b, 2) == bytes([6, 5])


def test_an_operator_runs_on_its_stream(cuda):
    stream, _ = acl.rt.create_stream()
    gradient, value = np.ones(8, np.float32), np.linspace(-4, 4, 8, dtype=np.float32)
    operands = [create(data=upload(array)) for array in (gradient, value, np.zeros(8, np.float32))]
    _, executor, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(*operands)
    assert status == 0
    cuda.log.clear()
    assert aclnn.aclnnHardsigmoidBackward(0, 0, executor, stream) == 0
    assert cuda.log == [("enter", "stream0")]
    result = np.frombuffer(download(aclnn.aclGetRawTensorAddr(operands[2])[0], 32), np.float32)
    np.testing.assert_allclose(result, np.where(abs(value) < 3, np.float32(1 / 6), 0))


def test_events_are_cuda_events(cuda):
    (first, _), (second, _), (event, _), (end, _) = (
        acl.rt.create_stream(), acl.rt.create_stream(), acl.rt.create_event(), acl.rt.create_event_with_flag(8),
    )  # fmt: skip
    assert acl.rt.query_event_status(event) == (0, 0)
    assert acl.rt.record_event(event, first) == acl.rt.stream_wait_event(second, event) == 0
    assert ("wait", "stream1", "stream0") in cuda.log
    cuda.made[0].busy = True
    assert acl.rt.query_event_status(event) == (0, 0)
    assert acl.rt.event_elapsed_time(event, event) == (0.0, 107000)
    cuda.made[0].busy = False
    assert acl.rt.query_event_status(event) == (1, 0)
    assert acl.rt.synchronize_event(event) == 0
    assert cuda.log[-1] == ("event", "stream0")
    assert acl.rt.record_event(end, second) == 0
    milliseconds, ret = acl.rt.event_elapsed_time(event, end)
    assert ret == 0
    assert milliseconds > 0


def test_queries_and_timeouts(cuda):
    stream, _ = acl.rt.create_stream()
    cuda.made[0].busy = True
    assert acl.rt.stream_query(stream) == (1, 0)
    assert acl.rt.synchronize_stream_with_timeout(stream, 5) == 507046
    cuda.made[0].busy = False
    assert acl.rt.stream_query(stream) == (0, 0)
    assert acl.rt.synchronize_stream_with_timeout(stream, 5) == 0


@pytest.mark.parametrize("wait", [lambda s: acl.rt.synchronize_stream(s), lambda _: acl.rt.synchronize_device()])
def test_a_fault_of_the_device_shows_at_the_next_synchronisation(cuda, wait, caplog):
    caplog.set_level(60, "aclgrad.acl")
    stream, _ = acl.rt.create_stream()
    cuda.made[0].fault = RuntimeError("device-side assert")
    assert wait(stream) == 507015
    assert "device-side assert" in acl.get_recent_err_msg()
    assert wait(stream) == 0
    cuda.made[0].fault = RuntimeError("again")
    assert acl.rt.stream_query(stream) == (0, 0)
    assert acl.rt.synchronize_stream_with_timeout(stream, 5) == 507015


def test_work_that_cannot_be_enqueued(cuda, caplog):
    caplog.set_level(60, "aclgrad.acl")
    stream, _ = acl.rt.create_stream()

    def fail():
        raise RuntimeError("no kernel image")

    devices.stream_of(stream).submit(fail)
    assert acl.rt.synchronize_stream(stream) == 507015


def test_a_synchronous_copy_that_fails(cuda):
    cuda.default.fault = RuntimeError("illegal access")
    pointer = malloc(8)
    assert acl.rt.memset(pointer, 8, 0, 8) == 507015
    assert "illegal access" in acl.get_recent_err_msg()
    assert acl.rt.memcpy(0x1000, 8, pointer, 8, D2H) == 107000, "a wild pointer is no fault of the device"


def test_free_waits_for_the_device(cuda):
    pointer, host = malloc(64), acl.rt.malloc_host(8)[0]
    cuda.log.clear()
    assert acl.rt.free(pointer) == acl.rt.free_host(host) == 0
    assert cuda.log == [("device", 0)] * 2


def test_a_destroyed_stream_takes_no_work(cuda):
    stream, _ = acl.rt.create_stream()
    queue = devices.stream_of(stream)
    assert acl.rt.destroy_stream(stream) == 0
    assert ("synchronize", "stream0") in cuda.log
    assert acl.rt.memset_async(malloc(8), 8, 0, 8, stream) == 107017
    with pytest.raises(RuntimeError, match="destroyed"):
        queue.submit(int)


def test_memory_is_the_devices(cuda):
    assert acl.rt.get_mem_info(0) == ((1 << 19) + 60, 1 << 20, 0)
    assert acl.rt.malloc(1 << 20, 0) == (0, 207001)
    assert acl.rt.malloc_host(1 << 20)[1] == 0


def test_pageable_memory_waits_for_the_stream_and_is_copied_at_once(cuda):
    stream, _ = acl.rt.create_stream()
    pointer, data = malloc(8), np.zeros(8, np.uint8)
    cuda.log.clear()
    assert acl.rt.memcpy_async(pointer, 8, acl.util.numpy_to_ptr(data), 8, H2D, stream) == 0
    assert cuda.log[:2] == [("synchronize", "stream0"), ("enter", "default")], cuda.log


def test_a_checked_run_sees_races_there_too(cuda, strict):
    (first, _), (second, _) = acl.rt.create_stream(), acl.rt.create_stream()
    pointer = malloc(64)
    assert acl.rt.memset_async(pointer, 64, 1, 64, first) == 0
    assert acl.rt.memset_async(pointer, 64, 1, 64, second) == 107000
    out = np.zeros(64, np.uint8)
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 64, pointer, 64, D2H) == 107000
    assert acl.rt.synchronize_stream(first) == 0
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 64, pointer, 64, D2H) == 0
    assert (out == 1).all()
    assert acl.rt.memcpy(pointer, 64, acl.util.numpy_to_ptr(out), 64, H2D) == 0
