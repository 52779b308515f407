"""Devices, contexts, and each thread's own current device."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from acl_helpers import H2D, PHASE_ONE, PHASE_TWO, create

from aclgrad import acl
from aclgrad.frontends.acl import devices, engine_cpu


@pytest.mark.parametrize("number", [-1, 1, 2**31 - 1])
def test_a_device_out_of_range(number):
    for call in (acl.rt.set_device, acl.rt.reset_device, acl.rt.reset_device_force):
        assert call(number) == 107001
    assert acl.rt.create_context(number) == (0, 107001)
    assert str(number) in acl.get_recent_err_msg()


@pytest.mark.parametrize("wrong", ["0", 0.0, None, True, [0], 2**31, -(2**31) - 1])
def test_a_device_that_is_no_int32(wrong):
    assert acl.rt.set_device(wrong) == 100000
    assert "deviceId" in acl.get_recent_err_msg()


def test_device_count_and_current_device():
    assert acl.rt.get_device_count() == (1, 0)
    assert acl.rt.get_device() == (0, 107002)
    assert acl.rt.set_device(0) == 0
    assert acl.rt.get_device() == (0, 0)


def test_runtime_calls_do_not_ask_for_init():
    assert acl.rt.set_device(0) == 0
    assert acl.rt.create_stream()[1] == 0


def test_reset_device_matches_set_device():
    assert acl.rt.reset_device(0) == 507007
    acl.rt.set_device(0), acl.rt.set_device(0)
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.get_device() == (0, 107002)
    assert acl.rt.reset_device(0) == 507007
    assert "aclrtResetDevice" in acl.get_recent_err_msg()
    assert acl.rt.set_device(0) == 0


def test_reset_device_force_takes_all_calls_back():
    acl.rt.set_device(0), acl.rt.set_device(0)
    assert acl.rt.reset_device_force(0) == 0
    assert acl.rt.reset_device_force(0) == 507007


def test_without_a_device_there_is_no_context():
    assert acl.rt.malloc(8, 0) == (0, 107002)
    assert acl.rt.create_stream() == (0, 107002)
    assert acl.rt.create_stream_with_config(0, 0) == (0, 107002)
    assert acl.rt.synchronize_stream(0) == acl.rt.synchronize_stream(None) == 107002
    assert acl.rt.synchronize_stream_with_timeout(0, 5) == 107002
    assert acl.rt.synchronize_device() == 107002
    assert acl.rt.stream_query(0) == (1, 107002)
    assert acl.rt.create_event() == (0, 107002)
    assert acl.rt.create_event_with_flag(8) == (0, 107002)
    assert acl.rt.get_mem_info(1) == (0, 0, 107002)
    assert acl.rt.get_context() == (0, 107002)


def test_the_last_reset_destroys_the_streams(device):
    stream, _ = acl.rt.create_stream()
    done = threading.Event()
    devices.stream_of(stream).submit(lambda: (done.wait(0.05), done.set()))
    assert acl.rt.reset_device(0) == 0
    assert done.is_set()
    assert acl.rt.synchronize_stream(stream) == 107002
    assert acl.rt.set_device(0) == 0
    assert acl.rt.synchronize_stream(stream) == 107017
    assert "destroyed" in acl.get_recent_err_msg()


def test_memory_outlives_the_device(device):
    pointer, _ = acl.rt.malloc(8, 0)
    acl.rt.reset_device(0)
    assert acl.rt.free(pointer) == 0


def test_the_current_device_is_per_thread(device):
    results = []
    thread = threading.Thread(target=lambda: results.append((acl.rt.get_device(), acl.rt.malloc(8, 0))))
    thread.start()
    thread.join()
    assert results == [((0, 107002), (0, 107002))]


def test_contexts():
    first, ret = acl.rt.create_context(0)
    assert ret == 0
    assert acl.rt.get_context() == (first, 0)
    assert acl.rt.get_device() == (0, 0)
    second, _ = acl.rt.create_context(0)
    assert acl.rt.get_context() == (second, 0)
    assert acl.rt.set_context(first) == 0
    assert acl.rt.get_context() == (first, 0)
    assert acl.rt.destroy_context(first) == 0
    assert acl.rt.get_context() == (0, 107002)
    assert acl.rt.destroy_context(first) == acl.rt.set_context(first) == 107017
    assert acl.rt.set_context(second) == 0


def test_wrong_contexts(device):
    primary, _ = acl.rt.get_context()
    assert acl.rt.destroy_context(primary) == 100000
    assert "primary" in acl.get_recent_err_msg()
    stream, _ = acl.rt.create_stream()
    for call in (acl.rt.destroy_context, acl.rt.set_context):
        assert call(0) == call(None) == call("x") == 100000
        assert call(0xDEADBEEF) == call(stream) == 107017


def test_a_thread_without_a_device_is_told_so(stream):
    """As on a device: whatever gives work to a stream or waits for it needs a current context."""
    size, host, event = 8, acl.rt.malloc_host(8)[0], acl.rt.create_event()[0]
    block = acl.rt.malloc(size, 0)[0]
    operands = [create((2,), data=block) for _ in range(2)] + [create((2,), data=acl.rt.malloc(size, 0)[0])]
    executor = PHASE_ONE(*operands)[1]
    calls = {
        "aclrtSynchronizeStream": lambda: acl.rt.synchronize_stream(stream),
        "aclrtSynchronizeStreamWithTimeout": lambda: acl.rt.synchronize_stream_with_timeout(stream, 1),
        "aclrtStreamQuery": lambda: acl.rt.stream_query(stream)[1],
        "aclrtMemcpy": lambda: acl.rt.memcpy(block, size, host, size, H2D),
        "aclrtMemcpyAsync": lambda: acl.rt.memcpy_async(block, size, host, size, H2D, stream),
        "aclrtMemset": lambda: acl.rt.memset(block, size, 0, size),
        "aclrtMemsetAsync": lambda: acl.rt.memset_async(block, size, 0, size, stream),
        "aclrtRecordEvent": lambda: acl.rt.record_event(event, stream),
        "aclrtStreamWaitEvent": lambda: acl.rt.stream_wait_event(stream, event),
        "aclnnHardsigmoidBackward": lambda: PHASE_TWO(0, 0, executor, stream),
    }
    for name, call in calls.items():
        with ThreadPoolExecutor(1) as pool:
            code, message = pool.submit(lambda call=call: (call(), acl.get_recent_err_msg())).result()
        assert code == (361001 if name.startswith("aclnn") else 107002), name
        assert message.startswith(f"{name}: this thread has no current device, expected aclrtSetDevice before (107002")
        with ThreadPoolExecutor(1, initializer=acl.rt.set_device, initargs=(0,)) as pool:
            assert pool.submit(call).result() == (161002 if name.startswith("aclnn") else 0), name


def test_a_stream_takes_no_work_from_another_context(stream):
    host, event, block = acl.rt.malloc_host(8)[0], acl.rt.create_event()[0], acl.rt.malloc(8, 0)[0]
    operands = [create((2,), data=acl.rt.malloc(8, 0)[0]) for _ in range(3)]
    other, _ = acl.rt.create_context(0)
    calls = [
        lambda: acl.rt.memcpy_async(block, 8, host, 8, H2D, stream),
        lambda: acl.rt.memset_async(block, 8, 0, 8, stream),
        lambda: acl.rt.record_event(event, stream),
        lambda: acl.rt.stream_wait_event(stream, event),
        lambda: acl.rt.reset_event(event, stream),
    ]
    for call in calls:
        assert call() == 107003
        assert "another context" in acl.get_recent_err_msg()
    assert PHASE_TWO(0, 0, PHASE_ONE(*operands)[1], stream) == 361001
    assert "107003 ACL_ERROR_RT_STREAM_CONTEXT" in acl.get_recent_err_msg()
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.rt.destroy_context(other) == 0
    assert acl.rt.set_device(0) == 0
    assert [call() for call in calls] == [0] * len(calls)


def test_two_devices(monkeypatch):
    monkeypatch.setattr(engine_cpu.CpuEngine, "count", 2)
    assert acl.rt.get_device_count() == (2, 0)
    assert acl.rt.set_device(1) == 0
    assert acl.rt.get_device() == (1, 0)
    one = devices.current_context().default_stream
    assert acl.rt.set_device(0) == 0
    assert devices.current_context().default_stream is not one
    assert acl.rt.reset_device(1) == 0
    assert acl.rt.get_device() == (0, 0)
