"""Callbacks of streams."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ....core.errors import InvalidArgument
from .. import raw, reports
from ..arguments import INT32_MAX, INT32_MIN, UINT64_MAX, address, integer, member, nullable_address
from ..boundary import code_only, runtime_call
from ..devices import stream_of
from ..enums import SUCCESS, CallbackBlockType
from .stream import FOREVER, MILLISECONDS

_C_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@runtime_call("aclrtSubscribeReport", code_only)
def subscribe_report(thread_id: Any, stream: Any) -> int:
    """Let a thread make the calls that a stream asks for; it has to call `process_report`."""
    reports.subscribe(integer("threadId", thread_id, 0, UINT64_MAX), stream_of(stream))
    return SUCCESS


@runtime_call("aclrtUnSubscribeReport", code_only)
def unsubscribe_report(thread_id: Any, stream: Any) -> int:
    """End a subscription."""
    reports.unsubscribe(integer("threadId", thread_id, 0, UINT64_MAX), stream_of(stream))
    return SUCCESS


@runtime_call("aclrtLaunchCallback", code_only)
def launch_callback(fn: Any, user_data: Any, block_type: Any, stream: Any) -> int:
    """Ask for a call of `fn` with `user_data` as work of a stream, in the thread that has subscribed to it."""
    kind = member("blockType", block_type, CallbackBlockType)
    call = _callback(fn, user_data)
    reports.launch(call, stream_of(stream), wait=kind is CallbackBlockType.ACL_CALLBACK_BLOCK)
    return SUCCESS


@runtime_call("aclrtProcessReport", code_only)
def process_report(timeout: Any) -> int:
    """Make the call that has waited longest, within `timeout` milliseconds; -1 waits for ever."""
    milliseconds = integer("timeout", timeout, INT32_MIN, INT32_MAX)
    if milliseconds < FOREVER or milliseconds == 0:
        raise InvalidArgument(f"timeout is {milliseconds}, expected -1 or a positive number of milliseconds", "timeout")
    reports.process(threading.get_ident(), None if milliseconds == FOREVER else milliseconds * MILLISECONDS)
    return SUCCESS


@runtime_call("aclrtLaunchHostFunc", code_only)
def launch_host_func(stream: Any, fn: Any, args: Any) -> int:
    """Call `fn` with `args` as work of a stream, in whatever thread the stream works."""
    stream_of(stream).submit(_callback(fn, args))
    return SUCCESS


def _callback(fn: Any, data: Any) -> Callable[[], object]:
    """A call of a Python function with any object, or of a C function, by its address, with another address."""
    if callable(fn):
        return lambda: fn(data)
    pointer = address("fn", fn)
    if not raw.executable(pointer):
        raise InvalidArgument(f"fn {pointer:#x} is no code, expected the address of a function", "fn")
    function, argument = _C_CALLBACK(pointer), nullable_address("userData", data)
    return lambda: function(argument)
