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

from .boundary import AclRuntimeError
from .enums import AclError
from .streams import Stream

Callback = Callable[[], object]


class Subscriber:
    """A thread that makes calls for streams."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callback, threading.Event, float]] = deque()  # the last is when it was asked for
        self._arrived = threading.Condition()
        self.streams = 0

    def hand_over(self, callback: Callback, *, wait: bool) -> None:
        """Ask for a call; return when it was made, if it is waited for."""
        made = threading.Event()
        with self._arrived:
            self._waiting.append((callback, made, time.monotonic()))
            self._arrived.notify()
        if wait:
            made.wait()

    def process(self, seconds: float | None) -> bool:
        """Make one call; False if none was asked for in so many seconds."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._waiting, seconds):
                return False
            callback, made, _ = self._waiting.popleft()
        try:
            callback()
        finally:
            made.set()
        return True

    def drop(self, before: float) -> int:
        """Forget calls that were asked for before a time, and let their streams go on; how many."""
        with self._arrived:
            late = [entry for entry in self._waiting if entry[2] < before]
            for entry in late:
                self._waiting.remove(entry)
                entry[1].set()
        return len(late)


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
    stream.submit(lambda: subscriber.hand_over(callback, wait=wait))


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


def drop(seconds: float) -> int:
    """Forget the calls that no thread has made for so many seconds: nobody will. How many there were."""
    with _lock:
        return sum(subscriber.drop(time.monotonic() - seconds) for subscriber in _subscribers.values())


def forget(stream: Stream) -> None:
    """A stream is gone, and its subscription with it."""
    found = _of_stream.get(stream)
    if found is not None:
        with suppress(AclRuntimeError):
            unsubscribe(found[0], stream)
