"""Events: marks in streams that others wait for."""

from __future__ import annotations

import time

from acl_helpers import Gate

from aclgrad import acl
from aclgrad.frontends.acl import devices


def test_events(device, stream):
    event, ret = acl.rt.create_event()
    assert ret == 0
    assert acl.rt.query_event_status(event) == (0, 0)
    assert acl.rt.synchronize_event(event) == 107000
    gate = Gate(devices.stream_of(stream))
    assert acl.rt.record_event(event, stream) == 0
    assert acl.rt.query_event_status(event) == (0, 0)
    gate.open()
    assert acl.rt.synchronize_event(event) == 0
    assert acl.rt.query_event_status(event) == (1, 0)
    assert acl.rt.reset_event(event, stream) == 0
    assert acl.rt.query_event_status(event) == (0, 0)
    assert acl.rt.destroy_event(event) == 0
    assert acl.rt.destroy_event(event) == 107017


def test_a_stream_waits_for_an_event_of_another(device):
    (a, _), (b, _), (event, _) = acl.rt.create_stream(), acl.rt.create_stream(), acl.rt.create_event()
    seen = []
    gate = Gate(devices.stream_of(a))
    devices.stream_of(a).submit(lambda: seen.append("a"))
    acl.rt.record_event(event, a)
    assert acl.rt.stream_wait_event(b, event) == 0
    assert acl.rt.destroy_event(event) == 0
    devices.stream_of(b).submit(lambda: seen.append("b"), small=True)
    time.sleep(0.02)
    assert seen == []
    gate.open()
    assert acl.rt.synchronize_stream(b) == 0
    assert seen == ["a", "b"]


def test_waiting_for_an_event_that_was_not_recorded_or_is_past_holds_nothing(device, stream):
    event, _ = acl.rt.create_event_with_flag(acl.ACL_EVENT_TIME_LINE)
    assert acl.rt.stream_wait_event(stream, event) == 0
    acl.rt.record_event(event, stream)
    assert acl.rt.stream_wait_event(0, event) == acl.rt.synchronize_stream(0) == 0


def test_elapsed_time(device, stream):
    (start, _), (end, _) = acl.rt.create_event(), acl.rt.create_event()
    assert acl.rt.event_elapsed_time(start, end) == (0.0, 107000)
    acl.rt.record_event(start, stream)
    devices.stream_of(stream).submit(lambda: time.sleep(0.03))
    acl.rt.record_event(end, stream)
    assert acl.rt.event_elapsed_time(start, end) == (0.0, 107000)
    assert "not reached" in acl.get_recent_err_msg()
    acl.rt.synchronize_event(end)
    milliseconds, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert 29 < milliseconds < 10000
    backwards, _ = acl.rt.event_elapsed_time(end, start)
    assert backwards == -milliseconds


def test_wrong_events(device, stream):
    event, _ = acl.rt.create_event()
    for call in (acl.rt.destroy_event, acl.rt.synchronize_event, lambda e: acl.rt.query_event_status(e)[1]):
        assert call(0) == call(None) == call("e") == 100000
        assert call(stream) == call(123456) == 107017
    assert acl.rt.record_event(stream, stream) == acl.rt.record_event(event, event) == 107017
    assert acl.rt.stream_wait_event(event, stream) == acl.rt.reset_event(event, 5) == 107017
    assert acl.rt.record_event(0, stream) == acl.rt.create_event_with_flag("x")[1] == 100000
    assert acl.rt.event_elapsed_time(event, 0) == acl.rt.event_elapsed_time(None, event) == (0.0, 100000)
