"""Callbacks of streams: a stream asks for one, and a thread that has subscribed to the stream makes the call.

subscribe(thread, stream)      the thread takes the callbacks of the stream from now on
launch(function, …, stream)    a task of the stream: put the callback before its thread, and wait for it if asked to
process(seconds)               in the thread: make the call that has waited longest
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from .boundary import AclRuntimeError, logger
from .enums import AclError
from .streams import Stream

Callback = Callable[[], object]


PATIENCE = 4.0
"""Seconds that the end of a stream waits for a call that a thread might still make."""


class Request(NamedTuple):
    """A call that was asked for: of what, by which stream, when, and whether it was made."""

    callback: Callback
    stream: Stream
    time: float
    made: threading.Event


class Subscriber:
    """A thread that makes calls for streams."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._arrived = threading.Condition()
        self._seen = -math.inf  # when it made a call last; infinity while it makes one
        self.streams = 0

    def hand_over(self, callback: Callback, stream: Stream, *, wait: bool) -> None:
        """Ask for a call; return when it was made, if it is waited for."""
        request = Request(callback, stream, time.monotonic(), threading.Event())
        with self._arrived:
            self._waiting.append(request)
            self._arrived.notify()
        if wait:
            request.made.wait()

    def process(self, seconds: float | None) -> bool:
        """Make one call; False if none was asked for in so many seconds."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._waiting, seconds):
                return False
            request = self._waiting.popleft()
            self._seen = math.inf
        try:
            request.callback()
        finally:
            self._seen = time.monotonic()
            request.made.set()
        return True

    def drop(self, before: float, stream: Stream | None = None) -> None:
        """Forget calls, of one stream or of all, if the thread has not come since; their streams go on."""
        with self._arrived:
            late = [each for each in self._waiting if each.time < before and stream in (None, each.stream)]
            if not late or self._seen > before:
                return
            for request in late:
                self._waiting.remove(request)
                request.made.set()
        logger.warning("%d callbacks are dropped, whose thread has not called aclrtProcessReport", len(late))


_lock = threading.Lock()
_subscribers: dict[int, Subscriber] = {}
_of_stream: dict[Stream, tuple[int, Subscriber]] = {}


def subscribe(thread: int, stream: Stream) -> None:
    """Let a thread make the calls of a stream; one thread for each stream."""
    with _lock:
        if stream in _of_stream:
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_STREAM_SUBSCRIBE,
                f"stream has a subscriber, thread {_of_stream[stream][0]}, expected aclrtUnSubscribeReport before",
            )
        subscriber = _subscribers.setdefault(thread, Subscriber())
        subscriber.streams += 1
        _of_stream[stream] = (thread, subscriber)


def unsubscribe(thread: int, stream: Stream) -> None:
    """End a subscription."""
    with _lock:
        owner, subscriber = _of_stream.get(stream, (None, None))
        if owner != thread or subscriber is None:
            raise AclRuntimeError(
                AclError.ACL_ERROR_RT_THREAD_SUBSCRIBE,
                f"threadId {thread} has not subscribed to the stream, expected aclrtSubscribeReport before",
            )
        del _of_stream[stream]
        subscriber.streams -= 1
        if not subscriber.streams:
            del _subscribers[thread]
            subscriber.drop(math.inf)  # nobody will make them now


def launch(callback: Callback, stream: Stream, *, wait: bool) -> None:
    """Ask for a call as work of a stream."""
    found = _of_stream.get(stream)
    if found is None:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_STREAM_NO_CB_REG,
            "stream has no subscriber, expected aclrtSubscribeReport before",
        )
    subscriber = found[1]
    stream.submit(lambda: subscriber.hand_over(callback, stream, wait=wait))


def process(thread: int, seconds: float | None) -> None:
    """Make one call for the streams that the thread has subscribed to."""
    with _lock:
        subscriber = _subscribers.get(thread)
    if subscriber is None:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_THREAD_SUBSCRIBE,
            f"thread {thread} has subscribed to no stream, expected aclrtSubscribeReport before",
        )
    if not subscriber.process(seconds):
        raise AclRuntimeError(AclError.ACL_ERROR_RT_REPORT_TIMEOUT, f"no callback was asked for in {seconds} s")


def finish(wait: Callable[[float], object], stream: Stream | None = None) -> None:
    """Let `wait(seconds)` see the end of a stream's work, or of all; calls that no thread comes to make are dropped."""
    while True:
        try:
            wait(PATIENCE)
            return
        except AclRuntimeError as failure:
            if failure.code is not AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT:
                raise
        with _lock:
            subscribers = list(_subscribers.values())
        for subscriber in subscribers:
            subscriber.drop(time.monotonic() - PATIENCE / 2, stream)


def has_subscriber(stream: Stream) -> bool:
    """Whether calls of a stream may be waiting for a thread."""
    return stream in _of_stream


def forget(stream: Stream) -> None:
    """A stream is gone, and its subscription with it."""
    found = _of_stream.get(stream)
    if found is not None:
        with suppress(AclRuntimeError):
            unsubscribe(found[0], stream)
