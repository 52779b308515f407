"""Streams run in order and beside the caller; failures arrive at the next synchronisation; nothing hangs."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from acl_helpers import D2D, D2H, H2D, PATIENCE, Gate

from aclgrad import acl
from aclgrad.frontends.acl import devices, reports
from aclgrad.frontends.acl.boundary import AclRuntimeError
from aclgrad.frontends.acl.enums import AclError, CallbackBlockType
from aclgrad.frontends.acl.rt.memory import SMALL_BYTES
from aclgrad.frontends.acl.streams import Stream


@pytest.fixture
def queue(stream: int) -> Stream:
    return devices.stream_of(stream)


def test_work_runs_in_order_small_or_not(queue):
    rng, seen = random.Random(0), []
    for k in range(500):
        if rng.random() < 0.02:
            queue.synchronize()
        queue.submit(lambda k=k: seen.append(k), small=rng.random() < 0.7)
    queue.synchronize()
    assert seen == list(range(500))


def test_small_work_on_an_idle_stream_runs_in_the_caller(queue):
    ran_in = []
    queue.submit(lambda: ran_in.append(threading.current_thread()), small=True)
    queue.submit(lambda: ran_in.append(threading.current_thread()))
    queue.synchronize()
    assert ran_in[0] is threading.current_thread()
    assert ran_in[1] is not threading.current_thread()
    assert ran_in[1].daemon


def test_small_work_waits_its_turn(queue, stream):
    gate, seen = Gate(queue), []
    queue.submit(lambda: seen.append(1), small=True)
    assert not seen
    assert acl.rt.stream_query(stream) == (1, 0)
    gate.open()
    queue.synchronize()
    assert seen == [1]
    assert acl.rt.stream_query(stream) == (0, 0)


def test_a_stream_without_large_work_has_no_thread(queue):
    before = threading.active_count()
    for _ in range(10):
        queue.submit(int, small=True)
    assert threading.active_count() == before


def test_streams_run_beside_each_other(device):
    first, second = (devices.stream_of(acl.rt.create_stream()[0]) for _ in range(2))
    meeting = threading.Barrier(2, timeout=PATIENCE)
    first.submit(meeting.wait)
    second.submit(meeting.wait)
    first.synchronize()
    second.synchronize()


def test_the_first_failure_is_reported_once_and_work_goes_on(queue, stream, caplog):
    caplog.set_level(logging.CRITICAL, "aclgrad.acl")
    seen = []

    def fail(text):
        raise ValueError(text)

    queue.submit(lambda: fail("first"))
    queue.submit(lambda: fail("second"), small=True)
    queue.submit(lambda: seen.append(1))
    assert acl.rt.synchronize_stream(stream) == 507015
    message = acl.get_recent_err_msg()
    assert "ValueError: first" in message
    assert "aclrtSynchronizeStream" in message
    assert seen == [1]
    assert acl.rt.synchronize_stream(stream) == 0
    queue.submit(lambda: fail("third"), small=True)
    with ThreadPoolExecutor(1) as pool:
        code, text = pool.submit(
            lambda: (acl.rt.set_device(0) or acl.rt.synchronize_stream(stream), acl.get_recent_err_msg())
        ).result()
    assert (code, "third" in text) == (507015, True)
    assert acl.get_recent_err_msg() is None


def test_a_failure_keeps_its_own_code(queue, stream, caplog):
    caplog.set_level(logging.CRITICAL, "aclgrad.acl")

    def refuse():
        raise AclRuntimeError(AclError.ACL_ERROR_RT_PARAM_INVALID, "no")

    queue.submit(refuse)
    assert acl.rt.synchronize_device() == 107000
    assert acl.rt.synchronize_device() == acl.rt.synchronize_stream(stream) == 0


def test_a_task_cannot_end_the_worker(queue, stream, caplog):
    caplog.set_level(logging.CRITICAL, "aclgrad.acl")
    queue.submit(sys.exit)
    assert acl.rt.synchronize_stream(stream) == 507015
    done = []
    queue.submit(lambda: done.append(1))
    assert acl.rt.synchronize_stream(stream) == 0
    assert done == [1]


def test_synchronize_with_timeout(queue, stream):
    gate = Gate(queue)
    start = time.monotonic()
    assert acl.rt.synchronize_stream_with_timeout(stream, 20) == 507046
    assert 0.015 < time.monotonic() - start < PATIENCE
    assert "1 tasks" in acl.get_recent_err_msg()
    assert acl.rt.synchronize_stream_with_timeout(stream, 0) == 507046
    gate.open()
    assert acl.rt.synchronize_stream_with_timeout(stream, -1) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, 1) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, 0) == acl.rt.synchronize_device_with_timeout(0) == 0
    for wrong in (2**31, "5", None, 1.5):
        assert acl.rt.synchronize_stream_with_timeout(stream, wrong) == 100000


def test_timeouts_out_of_range(device, stream):
    event, _ = acl.rt.create_event()
    acl.rt.record_event(event, stream)
    assert acl.rt.synchronize_event_with_timeout(event, 0) == 0
    assert acl.rt.stream_wait_event_with_timeout(stream, event, 0) == 0
    for call, timeout in (
        (lambda t: acl.rt.synchronize_stream_with_timeout(stream, t), -2),
        (lambda t: acl.rt.synchronize_event_with_timeout(event, t), -2),
        (acl.rt.synchronize_device_with_timeout, -2),
        (lambda t: acl.rt.stream_wait_event_with_timeout(stream, event, t), -1),
    ):
        assert call(timeout) == 107000
        assert f"timeout is {timeout}, expected" in acl.get_recent_err_msg()


@pytest.mark.parametrize("ends", ["unsubscribes", "destroys", "forces", "resets", "finalises"])
def test_a_callback_that_nobody_makes_holds_its_stream_no_longer(device, stream, ends, monkeypatch, caplog):
    monkeypatch.setattr(reports, "PATIENCE", 0.05)
    me, called = threading.get_ident(), []
    assert acl.rt.subscribe_report(me, stream) == 0
    assert acl.rt.launch_callback(called.append, 1, int(CallbackBlockType.ACL_CALLBACK_BLOCK), stream) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, 5) == 507046
    if ends == "unsubscribes":
        assert acl.rt.unsubscribe_report(me, stream) == 0
        assert acl.rt.synchronize_stream(stream) == 0
    elif ends in ("destroys", "forces"):
        end = acl.rt.destroy_stream if ends == "destroys" else acl.rt.destroy_stream_force
        assert end(stream) == 0
        assert acl.rt.process_report(1) == 107012
    elif ends == "resets":
        assert acl.rt.reset_device(0) == 0
    else:
        assert acl.finalize() == 0
        assert acl.init() == 0
    assert "1 callbacks are dropped" in caplog.text
    assert called == []


def test_a_thread_that_is_busy_with_a_callback_is_waited_for(device, stream, monkeypatch):
    monkeypatch.setattr(reports, "PATIENCE", 0.4)
    called, subscribed = [], threading.Event()

    def slow(number):
        time.sleep(0.5)
        called.append(number)

    def serve():
        subscribed.wait()
        for _ in range(2):
            acl.rt.process_report(-1)

    thread = threading.Thread(target=serve)
    thread.start()
    assert acl.rt.subscribe_report(thread.ident, stream) == 0
    for number in range(2):
        assert acl.rt.launch_callback(slow, number, int(CallbackBlockType.ACL_CALLBACK_BLOCK), stream) == 0
    subscribed.set()
    assert acl.rt.destroy_stream(stream) == 0
    thread.join()
    assert called == [0, 1]


def test_destroy_finishes_the_work(queue, stream):
    done = []
    queue.submit(lambda: (time.sleep(0.05), done.append(1)))
    assert acl.rt.destroy_stream(stream) == 0
    assert done == [1]
    assert acl.rt.destroy_stream(stream) == acl.rt.synchronize_stream(stream) == 107017
    with pytest.raises(AclRuntimeError, match="destroyed"):
        queue.submit(int)


def test_a_destroyed_stream_ends_its_thread(queue, stream):
    queue.submit(int)
    acl.rt.destroy_stream(stream)
    queue._worker.join(PATIENCE)
    assert not queue._worker.is_alive()


def test_wrong_streams(device):
    event, _ = acl.rt.create_event()
    assert acl.rt.destroy_stream(0) == acl.rt.destroy_stream(None) == 100000
    for call in (acl.rt.destroy_stream, acl.rt.synchronize_stream, lambda s: acl.rt.stream_query(s)[1]):
        assert call(event) == call(0xDEADBEEF) == call(2**200) == call(-5) == 107017
        assert call("x") == call(1.0) == call(True) == call([]) == 100000
        assert "stream" in acl.get_recent_err_msg()
    acl.rt.destroy_stream(event)
    assert "aclrtEvent" in acl.get_recent_err_msg()
    assert acl.rt.create_stream_with_config(0, 3)[1] == 0
    assert acl.rt.create_stream_with_config(-1, 0) == acl.rt.create_stream_with_config(0, 2**32) == (0, 100000)


def test_null_means_the_default_stream_of_the_device(device):
    gate = Gate(devices.stream_of(None))
    assert acl.rt.stream_query(0) == (1, 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (acl.rt.set_device(0), acl.rt.stream_query(0))).result() == (0, (1, 0))
    gate.open()
    assert acl.rt.synchronize_stream(0) == 0


def test_a_synchronous_copy_follows_the_default_stream_only(device, stream):
    pointer, _ = acl.rt.malloc(SMALL_BYTES * 2, 0)
    size = SMALL_BYTES * 2
    other, out = Gate(devices.stream_of(stream)), np.zeros(size, np.uint8)
    devices.stream_of(0).submit(lambda: time.sleep(0.05))
    assert acl.rt.memset_async(pointer, size, 7, size, 0) == 0
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), size, pointer, size, D2H) == 0
    assert (out == 7).all()
    assert acl.rt.stream_query(stream) == (1, 0)
    other.open()


@pytest.mark.parametrize("size", [16, SMALL_BYTES + 1])
def test_asynchronous_copies_and_fills(device, stream, size):
    gate = Gate(devices.stream_of(stream))
    data, out = (acl.util.ptr_to_numpy(acl.rt.malloc_host(size)[0], (size,), np.uint8) for _ in range(2))
    data[:], out[:] = np.random.default_rng(0).integers(0, 256, size, np.uint8), 0
    a, b = acl.rt.malloc(size, 0)[0], acl.rt.malloc(size, 0)[0]
    assert acl.rt.memcpy_async(a, size, acl.util.numpy_to_ptr(data), size, H2D, stream) == 0
    assert acl.rt.memcpy_async(b, size, a, size, D2D, stream) == 0
    assert acl.rt.memset_async(b, size, 9, 1, stream) == 0
    assert acl.rt.memcpy_async(acl.util.numpy_to_ptr(out), size, b, size, D2H, stream) == 0
    assert acl.rt.free(a) == acl.rt.free(b) == 0
    assert not out.any()
    gate.open()
    assert acl.rt.synchronize_stream(stream) == 0
    assert out[0] == 9
    assert (out[1:] == data[1:]).all()


@pytest.mark.parametrize("size", [16, SMALL_BYTES + 1])
def test_an_asynchronous_copy_of_pageable_memory_returns_when_it_is_done(device, stream, size):
    """Nothing keeps such memory, so it is copied before the call returns, and behind the work of the stream."""
    gate = Gate(devices.stream_of(stream))
    pointer, data, out = acl.rt.malloc(size, 0)[0], np.full(size, 2, np.uint8), np.zeros(size, np.uint8)
    assert acl.rt.memset_async(pointer, size, 9, size, stream) == 0
    threading.Timer(0.05, gate.open).start()
    assert acl.rt.memcpy_async(pointer, size, acl.util.numpy_to_ptr(data), size, H2D, stream) == 0
    data.fill(-1 % 256)  # a temporary buffer may be gone by now
    assert devices.stream_of(stream).idle
    assert acl.rt.memcpy_async(acl.util.numpy_to_ptr(out), size, pointer, size, D2H, stream) == 0
    assert (out == 2).all()


def test_an_asynchronous_copy_of_pageable_memory_reports_what_failed_before_it(device, queue, stream, caplog):
    caplog.set_level(logging.CRITICAL, "aclgrad.acl")
    queue.submit(lambda: 1 // 0)
    pointer, data = acl.rt.malloc(8, 0)[0], np.zeros(8, np.uint8)
    assert acl.rt.memcpy_async(pointer, 8, acl.util.numpy_to_ptr(data), 8, H2D, stream) == 507015
    assert acl.rt.memcpy_async(pointer, 8, acl.util.numpy_to_ptr(data), 8, H2D, stream) == 0


def test_host_to_host_is_no_work_for_a_stream(device, stream):
    locked, data = acl.rt.malloc_host(8)[0], np.zeros(8, np.uint8)
    for kind in (0, 1, 2, 3, 4):
        assert acl.rt.memcpy_async(locked, 8, acl.util.numpy_to_ptr(data), 8, kind, stream) == 207000
        assert "expected aclrtMemcpy" in acl.get_recent_err_msg()
    assert acl.rt.memcpy_async(locked, 0, acl.util.numpy_to_ptr(data), 0, 0, stream) == 0


def test_wrong_asynchronous_calls(device, stream):
    pointer, out = acl.rt.malloc(8, 0)[0], np.zeros(8, np.uint8)
    h = acl.util.numpy_to_ptr(out)
    assert acl.rt.memcpy_async(h, 8, pointer, 8, D2H, 0xBAD) == 107017
    assert acl.rt.memcpy_async(h, 7, pointer, 8, D2H, stream) == 107000
    assert acl.rt.memset_async(pointer, 8, 0, 9, stream) == 107000
    assert acl.rt.memset_async(pointer, 8, 0, 8, "s") == 100000
    assert acl.rt.memset_async(pointer, 8, 0, 8, 0xBAD) == 107017


def test_finalize_finishes_the_work(device, stream):
    done = []
    devices.stream_of(stream).submit(lambda: (time.sleep(0.05), done.append(1)))
    assert acl.finalize() == 0
    assert done == [1]
