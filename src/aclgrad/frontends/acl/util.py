"""acl.util.*: between Python objects and addresses. Those about objects return no code; a refused call gives 0
or None.

An address is valid as long as the object it came from lives.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import InvalidArgument, WrongType
from . import raw
from .arguments import INT64_MAX, UINT64_MAX, address, integer, shown, size_t
from .blocks import DEVICE, HOST, Block
from .boundary import AclRuntimeError, after, code_only, instead, runtime_call, tolerate
from .enums import SUCCESS, AclError
from .findings import Kind
from .transfers import handed_out

Array = npt.NDArray[Any]

STOP_SECONDS = 10.0

_threads: dict[int, threading.Thread] = {}
_NUMPY_TYPES: dict[int, np.dtype[Any]] = {np.dtype(code).num: np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"}


@runtime_call("acl.util.bytes_to_ptr", instead(0))
def bytes_to_ptr(data: Any) -> int:
    """The address of a bytes object."""
    if not isinstance(data, bytes):
        raise WrongType(f"data is {shown(data)}, expected bytes", "data")
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@runtime_call("acl.util.ptr_to_bytes", instead(None))
def ptr_to_bytes(ptr: Any, size: Any) -> bytes | None:
    """A copy of the bytes at an address."""
    start, amount = address("ptr", ptr), size_t("size", size)
    _check_range(start, amount, write=False)
    return ctypes.string_at(start, amount)


@runtime_call("acl.util.numpy_to_ptr", instead(0))
def numpy_to_ptr(array: Any) -> int:
    """The address of an array's first element."""
    return int(_as_array(array).ctypes.data)


@runtime_call("acl.util.numpy_contiguous_to_ptr", instead((0, None)))
def numpy_contiguous_to_ptr(array: Any) -> tuple[int, Array | None]:
    """(address, array): the array itself if it is row-major, otherwise a row-major copy."""
    contiguous = np.ascontiguousarray(_as_array(array))
    return int(contiguous.ctypes.data), contiguous


@runtime_call("acl.util.ptr_to_numpy", instead(None))
def ptr_to_numpy(ptr: Any, shape: Any, numpy_type: Any) -> Array | None:
    """A writable array over the memory at an address; `numpy_type` is a numpy type number or a dtype.

    The array keeps memory of this runtime alive, also beyond its being freed.
    """
    start = address("ptr", ptr)
    dtype = _as_dtype(numpy_type)
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
        raise WrongType(f"shape is {shown(shape)}, expected a tuple of integers", "shape")
    dims = [integer(f"shape[{k}]", n, 0, INT64_MAX) for k, n in enumerate(shape)]
    amount = dtype.itemsize
    for dim in dims:
        amount *= dim
    block = _check_range(start, amount, write=True)
    if block is None:
        memory: Any = np.ctypeslib.as_array((ctypes.c_uint8 * amount).from_address(start))
    else:
        memory = block.storage.numpy()[start - block.address :][:amount]
    try:
        array: Array = memory.view(dtype).reshape(dims)
    except ValueError as error:  # numpy has a limit of its own for dimensions beside an empty one
        raise InvalidArgument(f"shape {shown(dims)} does not fit ({error})", "shape") from None
    return array


@runtime_call("acl.util.start_thread", after(0))
def start_thread(func: Any, args: Any) -> tuple[int, int]:
    """(number of a new thread that calls `func` with the list `args`, ret)."""
    if not callable(func):
        raise WrongType(f"func is {shown(func)}, expected a function", "func")
    if not isinstance(args, list | tuple):
        raise WrongType(f"args is {shown(args)}, expected a list", "args")
    thread = threading.Thread(target=func, args=(args,), name="aclgrad-callbacks", daemon=True)
    thread.start()
    assert thread.ident is not None
    _threads[thread.ident] = thread
    return thread.ident, SUCCESS


@runtime_call("acl.util.stop_thread", code_only)
def stop_thread(thread_id: Any) -> int:
    """Wait until the function of `start_thread` has returned, which is the program's business."""
    thread = _threads.get(integer("threadId", thread_id, 0, UINT64_MAX))
    if thread is None:
        raise InvalidArgument(f"threadId is {thread_id}, expected that of a thread of start_thread", "threadId")
    if thread is threading.current_thread():
        raise InvalidArgument("threadId is that of the calling thread, expected another one", "threadId")
    thread.join(STOP_SECONDS)
    if thread.is_alive():
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_WAIT_TIMEOUT, f"the function has not returned in {STOP_SECONDS} s, expected it to"
        )
    _threads.pop(thread.ident or 0, None)
    return SUCCESS


def _check_range(start: int, amount: int, *, write: bool) -> Block | None:
    """Refuse memory that does not exist; the block of memory that belongs to this runtime."""
    block = DEVICE.find(start) or HOST.find(start)
    if block is None and not handed_out(start):
        if not raw.accessible(start, amount, write=write):
            raise InvalidArgument(f"ptr {start:#x} is not mapped for {amount} bytes, expected valid memory", "ptr")
    elif block is None or not block.alive:
        raise InvalidArgument(f"ptr {start:#x} is in a freed block, expected live memory", "ptr")
    elif start + amount > block.end:
        raise InvalidArgument(f"size is {amount}, but ptr has only {block.end - start} bytes left in its block", "size")
    elif block.storage.device.type != "cpu":
        raise InvalidArgument(f"ptr {start:#x} is on {block.storage.device}, expected memory of the host", "ptr")
    elif DEVICE.find(start) is block:
        tolerate(Kind.HOST_ACCESS, f"ptr {start:#x} is device memory, expected a copy of it in memory of the host")
    return block


def _as_array(value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise WrongType(f"array is {shown(value)}, expected a numpy.ndarray", "array")
    return value


def _as_dtype(numpy_type: Any) -> np.dtype[Any]:
    number = numpy_type
    if isinstance(numpy_type, type | np.dtype):
        try:
            number = np.dtype(numpy_type).num
        except TypeError:
            number = None
    dtype = _NUMPY_TYPES.get(number) if type(number) is int else None
    if dtype is None:
        raise WrongType(f"numpy_type is {shown(numpy_type)}, expected the number of a numeric numpy type", "numpy_type")
    return dtype
