"""Which orders of work a checked run accepts: every way to wait counts, and nothing else does."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from acl_helpers import D2H, Gate, create, launch, malloc

from aclgrad import acl
from aclgrad.frontends.acl import devices, ordering
from aclgrad.frontends.acl.ordering import REMEMBERED_TASKS

SIZE = 64


@pytest.fixture(autouse=True)
def _checked(checked):
    pass


@pytest.fixture
def streams():
    return [acl.rt.create_stream()[0] for _ in range(3)]


@pytest.fixture
def pointer():
    return malloc(SIZE)


def write(pointer, stream, size=SIZE):
    return acl.rt.memset_async(pointer, size, 1, size, stream)


def read(pointer, stream):
    return acl.rt.memcpy_async(malloc(SIZE), SIZE, pointer, SIZE, 3, stream)


def fetch(pointer):
    out = np.zeros(SIZE, np.uint8)
    return acl.rt.memcpy(acl.util.numpy_to_ptr(out), SIZE, pointer, SIZE, D2H)


def event_behind(stream):
    event, _ = acl.rt.create_event()
    assert acl.rt.record_event(event, stream) == 0
    return event


WAITS = {
    "synchronize_stream": lambda s: acl.rt.synchronize_stream(s),
    "with_timeout": lambda s: acl.rt.synchronize_stream_with_timeout(s, 5000),
    "synchronize_device": lambda s: acl.rt.synchronize_device(),
    "stream_query": lambda s: acl.rt.stream_query(s)[1],
    "synchronize_event": lambda s: acl.rt.synchronize_event(event_behind(s)),
    "query_event": lambda s: acl.rt.query_event_status(event_behind(s))[1],
    "elapsed_time": lambda s: acl.rt.event_elapsed_time(event_behind(s), event_behind(s))[1],
    "another_thread": lambda s: in_thread(lambda: acl.rt.set_device(0) or acl.rt.synchronize_stream(s)),
}


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("wait", WAITS)
def test_every_way_to_wait_counts(streams, pointer, wait):
    assert write(pointer, streams[0]) == 0
    assert fetch(pointer) == 107000
    assert WAITS[wait](streams[0]) == 0
    assert fetch(pointer) == acl.rt.destroy_stream(streams[0]) == acl.rt.free(pointer) == 0


def test_waiting_for_something_else_does_not_count(streams, pointer):
    early = event_behind(streams[0])
    assert write(pointer, streams[0]) == 0
    for wait in (
        lambda: acl.rt.synchronize_stream(streams[1]),
        lambda: acl.rt.synchronize_event(early),
        lambda: acl.rt.synchronize_stream(0),
    ):
        assert wait() == 0
        assert fetch(pointer) == 107000


def test_a_query_that_says_no_does_not_count(streams, pointer):
    gate = Gate(devices.stream_of(streams[0]))
    assert write(pointer, streams[0]) == 0
    late = event_behind(streams[0])
    assert acl.rt.stream_query(streams[0]) == (1, 0)
    assert acl.rt.query_event_status(late) == (0, 0)
    assert acl.rt.synchronize_stream_with_timeout(streams[0], 5) == 507046
    assert fetch(pointer) == 107000
    gate.open()


def test_reading_what_is_read_is_no_race(streams, pointer):
    assert read(pointer, streams[0]) == read(pointer, streams[1]) == fetch(pointer) == 0
    assert write(pointer, streams[2]) == 107000
    assert acl.rt.memset(pointer, SIZE, 0, SIZE) == 107000


def test_neighbours_do_not_race(streams):
    pointer = malloc(2 * SIZE)
    assert write(pointer, streams[0]) == write(pointer + SIZE, streams[1]) == 0
    assert acl.rt.synchronize_stream(streams[0]) == fetch(pointer) == 0
    assert fetch(pointer + SIZE - 1) == 107000


def test_one_stream_does_not_race_with_itself(streams, pointer):
    assert [write(pointer, streams[0]) for _ in range(5)] == [0] * 5
    assert read(pointer, streams[0]) == 0


def test_events_order_streams(streams, pointer):
    first, second, third = streams
    assert write(pointer, first) == 0
    event = event_behind(first)
    assert write(pointer, second) == 107000
    assert acl.rt.stream_wait_event(second, event) == 0
    assert write(pointer, second) == 0
    assert write(pointer, first) == 107000, "nothing orders it behind the second stream"
    assert acl.rt.stream_wait_event(third, event_behind(second)) == 0
    assert write(pointer, third) == 0, "an event passes on what its stream has waited for"
    assert acl.rt.synchronize_stream(third) == fetch(pointer) == 0
    assert acl.rt.destroy_stream(first) == acl.rt.destroy_stream(second) == 0


def test_an_event_stands_for_its_newest_recording(streams, pointer):
    event = event_behind(streams[0])
    assert write(pointer, streams[0]) == 0
    assert acl.rt.stream_wait_event(streams[1], event) == 0
    assert write(pointer, streams[1]) == 107000
    assert acl.rt.record_event(event, streams[0]) == acl.rt.stream_wait_event(streams[1], event) == 0
    assert write(pointer, streams[1]) == 0
    other = malloc(SIZE)
    assert write(other, streams[0]) == acl.rt.record_event(event, streams[0]) == 0
    assert acl.rt.reset_event(event, streams[0]) == 0
    assert acl.rt.stream_wait_event(streams[2], event) == 107000, "it is not recorded any more"
    assert write(other, streams[2]) == 107000


def test_what_the_host_waited_for_orders_what_it_submits_later(streams, pointer):
    assert write(pointer, streams[0]) == acl.rt.synchronize_stream(streams[0]) == write(pointer, streams[1]) == 0
    assert write(pointer, streams[0]) == 107000


def test_the_null_stream_is_followed_by_synchronous_copies(pointer, streams):
    assert write(pointer, 0) == fetch(pointer) == 0
    assert write(pointer, 0) == write(pointer, streams[0]) == 0, "what the null stream is ordered with is not certain"
    assert fetch(pointer) == 107000, "the other stream was not waited for"


def test_freed_addresses_mean_nothing_any_more(streams, pointer):
    assert write(pointer, streams[0]) == 0
    assert acl.rt.free(pointer) == 207002
    with ordering._lock:
        assert not any(task.touches for line in ordering._lines.values() for task in line.pending)


def test_host_memory_is_followed_too(streams, pointer):
    host, _ = acl.rt.malloc_host(SIZE)
    assert acl.rt.memcpy_async(host, SIZE, pointer, SIZE, 2, streams[0]) == 0
    assert acl.rt.memcpy(malloc(SIZE), SIZE, host, SIZE, 1) == 107000
    assert acl.rt.free_host(host) == 207002


def operands(*pointers, stride=None):
    return [create(dims=(4,), stride=stride, storage=(8,), data=pointer) for pointer in pointers]


def test_operators_read_inputs_and_write_outputs(streams):
    a, b, c = malloc(SIZE), malloc(SIZE), malloc(SIZE)
    tensors = operands(a, b, c)
    assert launch(tensors, streams[0]) == 0
    assert fetch(a) == fetch(b) == 0
    assert fetch(c) == 107000
    assert "aclnnHardsigmoidBackward of" in acl.get_recent_err_msg()
    assert acl.rt.memset(a, SIZE, 0, SIZE) == 107000
    assert launch(tensors, streams[1]) == 361001
    assert launch(operands(a, b, malloc(SIZE)), streams[1]) == 0
    assert acl.rt.free(b) == 207002


def test_interleaved_views_are_not_said_to_race(streams):
    a, b, c = malloc(SIZE), malloc(SIZE), malloc(SIZE)
    even = operands(a, b, c, stride=(2,))
    odd = [create(dims=(4,), stride=(2,), offset=1, storage=(8,), data=pointer) for pointer in (a, b, c)]
    assert launch(even, streams[0]) == launch(odd, streams[1]) == 0
    assert acl.rt.free(c) == 207002


def test_torch_tensors_are_not_followed(streams):
    tensors = [torch.ones(4) for _ in range(3)]
    assert launch(tensors, streams[0]) == launch(tensors, streams[1]) == 0


def test_the_memory_of_a_run_is_bounded(streams, pointer):
    for _ in range(REMEMBERED_TASKS + 10):
        write(pointer, streams[0], 8)
    (line,) = ordering._lines.values()
    assert len(line.pending) == REMEMBERED_TASKS
    assert acl.rt.synchronize_stream(streams[0]) == 0
    assert not line.pending
    for stream in streams:
        assert acl.rt.destroy_stream(stream) == 0
    assert not ordering._lines
    assert not ordering._host


def test_work_that_failed_was_waited_for_all_the_same(streams, caplog):
    caplog.set_level(60, "aclgrad.acl")

    def fail():
        raise ValueError

    devices.stream_of(streams[0]).submit(fail)
    assert write(malloc(SIZE), streams[0]) == 0
    assert acl.rt.synchronize_stream(streams[0]) == 507015
    assert acl.rt.destroy_stream(streams[0]) == 0
