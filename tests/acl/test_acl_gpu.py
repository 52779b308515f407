"""The runtime on CUDA memory: `python -m pytest -m gpu tests/acl`. Left out without such a device."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from acl_helpers import D2D, D2H, DEFAULT, H2D, create, download, malloc, upload

from aclgrad import acl, aclnn
from aclgrad.core.registry import aclnn_operators
from aclgrad.frontends.acl import devices
from aclgrad.frontends.acl.blocks import DEVICE, HOST
from aclgrad.testing import program
from aclgrad.testing.cases import SMOKE, suite
from aclgrad.testing.poison import fill
from aclgrad.testing.verdicts import run

pytestmark = pytest.mark.needs_gpu

LARGE = 64 << 20
SLOW_CYCLES = 400_000_000  # a fifth of a second or more


@pytest.fixture(autouse=True)
def _on_cuda(monkeypatch):
    monkeypatch.setenv("ACLGRAD_DEVICE", "cuda")


@pytest.fixture
def cuda(_on_cuda, device):
    """Device 0, which is a CUDA device, is current."""


@pytest.fixture
def streams(cuda):
    return [acl.rt.create_stream()[0] for _ in range(2)]


def keep_busy(stream: int) -> None:
    devices.stream_of(stream).submit(lambda: torch.cuda._sleep(SLOW_CYCLES))


def random_bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def test_memory_is_on_the_device(cuda):
    assert acl.rt.get_device_count() == (torch.cuda.device_count(), 0)
    before, total, ret = acl.rt.get_mem_info(1)
    assert ret == 0
    pointer = malloc(LARGE)
    assert DEVICE.owner(pointer).storage.is_cuda
    assert pointer % 64 == 0
    assert before - acl.rt.get_mem_info(1)[0] >= LARGE
    assert total > LARGE
    host, _ = acl.rt.malloc_host(100)
    assert HOST.owner(host).storage.is_pinned()
    assert acl.util.ptr_to_bytes(pointer, 8) is acl.util.ptr_to_numpy(pointer, (8,), np.uint8) is None
    assert "cuda" in acl.get_recent_err_msg()
    assert acl.rt.malloc(1 << 50, 0) == (0, 207001)
    assert acl.rt.free(pointer) == 0
    assert acl.rt.memset(pointer, 8, 0, 8) == 107016


@pytest.mark.parametrize("size", [1, 31, 4096, 65537, 5 << 20])
def test_copies_in_every_direction(cuda, size):
    data = random_bytes(size)
    first, second, host = upload(data), malloc(size), acl.rt.malloc_host(size)[0]
    assert acl.rt.memcpy(second, size, first, size, D2D) == 0
    assert download(second, size) == data.tobytes()
    assert acl.rt.memcpy(host, size, second, size, DEFAULT) == 0
    assert acl.util.ptr_to_bytes(host, size) == data.tobytes()
    assert acl.rt.memset(second, size, 0x1AB, size) == 0
    assert download(second, size) == b"\xab" * size
    assert acl.rt.memcpy(first, size, second, size, H2D) == 0  # the addresses decide
    assert download(first, size) == b"\xab" * size


def test_borders_of_blocks(cuda):
    pointer = upload(np.arange(32, dtype=np.uint8))
    assert download(pointer + 30, 4) == bytes([30, 31, 0, 0])
    assert acl.rt.memcpy(pointer + 4, 28, pointer, 28, D2D) == 0
    assert download(pointer, 32) == bytes([0, 1, 2, 3, *range(28)])
    assert acl.rt.memset(pointer, 64, 0, 33) == 107000
    assert acl.rt.memcpy(0x1000, 8, pointer, 8, D2H) == 107000


def test_a_stream_works_in_order_and_beside_the_caller(streams):
    stream, data = streams[0], random_bytes(LARGE)
    a, b, host = malloc(LARGE), malloc(LARGE), acl.rt.malloc_host(LARGE)[0]
    source = acl.rt.malloc_host(LARGE)[0]
    acl.util.ptr_to_numpy(source, (LARGE,), np.uint8)[:] = data
    started = time.perf_counter()
    keep_busy(stream)
    assert acl.rt.memcpy_async(a, LARGE, source, LARGE, H2D, stream) == 0
    assert acl.rt.memcpy_async(b, LARGE, a, LARGE, D2D, stream) == 0
    assert acl.rt.memset_async(b, LARGE, 9, 1, stream) == 0
    assert acl.rt.memcpy_async(host, LARGE, b, LARGE, D2H, stream) == 0
    submitted = time.perf_counter() - started
    assert acl.rt.stream_query(stream) == (1, 0)
    assert acl.rt.synchronize_stream_with_timeout(stream, 1) == 507046
    assert acl.rt.synchronize_stream_with_timeout(stream, 10_000) == 0
    assert submitted < (time.perf_counter() - started) / 2
    assert acl.rt.stream_query(stream) == (0, 0)
    result = acl.util.ptr_to_numpy(host, (LARGE,), np.uint8)
    assert result[0] == 9
    assert (result[1:] == data[1:]).all()


def test_events_order_streams_and_tell_the_time(streams):
    first, second = streams
    pointer, (start, _), (end, _) = malloc(64), acl.rt.create_event(), acl.rt.create_event()
    assert acl.rt.memset(pointer, 64, 0, 64) == 0
    assert acl.rt.record_event(start, first) == 0
    keep_busy(first)
    assert acl.rt.memset_async(pointer, 64, 1, 64, first) == acl.rt.record_event(end, first) == 0
    assert acl.rt.query_event_status(end) == (0, 0)
    assert acl.rt.event_elapsed_time(start, end)[1] == 107000
    assert acl.rt.stream_wait_event(second, end) == 0
    assert acl.rt.memset_async(pointer, 64, 2, 64, second) == 0
    assert acl.rt.synchronize_stream(second) == 0
    assert acl.rt.query_event_status(end) == (1, 0)
    assert download(pointer, 64) == b"\x02" * 64
    milliseconds, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert 50 < milliseconds < 10_000
    assert acl.rt.synchronize_event(end) == 0


def test_a_synchronous_copy_follows_the_null_stream_only(streams):
    size = 1 << 20
    pointer, other = malloc(size), malloc(64)
    keep_busy(streams[0])
    assert acl.rt.memset_async(other, 64, 1, 64, streams[0]) == 0
    assert acl.rt.memset_async(pointer, size, 7, size, 0) == 0
    copied, state = download(pointer, size), acl.rt.stream_query(streams[0])
    assert state == (1, 0)
    assert copied == b"\x07" * size
    assert acl.rt.synchronize_device() == 0


def test_memory_freed_under_queued_work_is_not_given_away(streams):
    for size in (64, LARGE):
        first, host = malloc(size), acl.rt.malloc_host(size)[0]
        keep_busy(streams[0])
        assert acl.rt.memset_async(first, size, 1, size, streams[0]) == 0
        assert acl.rt.memcpy_async(host, size, first, size, D2H, streams[0]) == 0
        assert acl.rt.free(first) == 0
        second = malloc(size)
        assert acl.rt.memset_async(second, size, 2, size, streams[1]) == 0
        assert acl.rt.synchronize_device() == 0
        assert acl.util.ptr_to_bytes(host, size) == b"\x01" * size
        assert download(second, size) == b"\x02" * size
        assert acl.rt.free(second) == 0


@pytest.mark.parametrize("operator", list(aclnn_operators()), ids=lambda operator: operator.spec.name)
def test_operators_on_device_memory(operator):
    cases = suite(operator.spec).cases
    case = next(case for case in cases if SMOKE in case.tags)
    args = case.build()
    expected = run(operator, args, "reference")
    outs = operator.plan(args, backend="reference").allocate()
    for out in _flat(outs):
        fill(out)
    status, results, _ = program.run(operator, args, outs)
    assert status == 0, acl.get_recent_err_msg()
    for result, truth in zip(_flat(results), _flat(expected), strict=True):
        torch.testing.assert_close(result, truth, equal_nan=True)


def test_operators_are_asynchronous(streams):
    operands = [create(data=upload(np.full(8, value, np.float32))) for value in (2, 0, 7)]
    out = aclnn.aclGetRawTensorAddr(operands[2])[0]
    _, executor, status = aclnn.aclnnHardsigmoidBackwardGetWorkspaceSize(*operands)
    assert status == 0
    keep_busy(streams[0])
    assert aclnn.aclnnHardsigmoidBackward(0, 0, executor, streams[0]) == 0
    assert acl.rt.stream_query(streams[0]) == (1, 0)
    assert acl.rt.synchronize_stream(streams[0]) == 0
    np.testing.assert_allclose(np.frombuffer(download(out, 32), np.float32), 1 / 3, rtol=1e-6)


POISONED = """
import torch
from aclgrad import acl
from aclgrad.frontends.acl import devices
acl.init(), acl.rt.set_device(0)
(stream, _), (pointer, _), (event, _) = acl.rt.create_stream(), acl.rt.malloc(64, 0), acl.rt.create_event()
devices.stream_of(stream).submit(lambda: torch.zeros(4, device="cuda")[torch.full((2,), 10, device="cuda")])
codes = [acl.rt.synchronize_stream(stream)]
codes += [acl.rt.memset(pointer, 64, 0, 64), acl.rt.malloc(1 << 24, 0)[1], acl.rt.free(pointer)]
print(codes, "device-side assert" in acl.get_recent_err_msg(), acl.finalize())
"""


def test_a_fault_of_the_device_is_reported_by_whoever_meets_it():
    done = subprocess.run([sys.executable, "-c", POISONED], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "[507015, 507015, 507015, 507015] True 0\n"), done.stderr[-2000:]
    assert "failed unexpectedly" not in done.stderr


def test_a_checked_run(strict, cuda):
    (stream, _), pointer = acl.rt.create_stream(), malloc(64)
    assert acl.rt.memset_async(pointer, 64, 3, 64, stream) == 0
    out = np.zeros(64, np.uint8)
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 64, pointer, 64, D2H) == 107000
    assert acl.rt.synchronize_stream(stream) == 0
    assert download(pointer, 64) == b"\x03" * 64
    assert acl.finalize() == 0
    titles = [finding.kind.title for finding in acl.findings()]
    assert sorted(titles) == ["copy-race", "device-memory-leaked", "device-not-reset", "stream-leaked"]


def _flat(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif value is not None:
            yield from _flat(value)
