"""Functions whose pointers mean something else than everywhere, and those that are no interface's own."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ...core.errors import AclgradError, NullArgument
from ..acl import raw
from ..acl.arguments import member
from ..acl.boundary import FUNCTIONS, aclnn_status, refusal, runtime_code
from ..acl.enums import SUCCESS, TORCH_DTYPES, AclDataType
from .pointers import text_at, untouchable

_LOG_LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR}
_thread = threading.local()


def _recent_message() -> bytes | None:
    """The newest message of the thread; its bytes live until the thread's next call of this."""
    message = FUNCTIONS["aclGetRecentErrMsg"]()
    encoded = None if message is None else message.encode("utf-8", "backslashreplace")
    _thread.message = encoded
    return encoded


def _soc_name() -> bytes | None:
    name = FUNCTIONS["aclrtGetSocName"]()
    return None if name is None else _lasting(name)


@cache
def _lasting(text: str) -> bytes:
    """Bytes that live as long as the process."""
    return text.encode()


def _create_scalar(value: int, data_type: int) -> Any:
    """What aclCreateScalar makes of the number at an address."""
    try:
        dtype = TORCH_DTYPES.get(member("dataType", data_type, AclDataType))
        if value == 0:
            raise NullArgument("value is null, expected the address of a number", "value")
        if dtype is None:
            return FUNCTIONS["aclCreateScalar"](0, data_type)
        if not raw.accessible(value, dtype.itemsize, write=False):
            raise untouchable("value", value, dtype.itemsize, "readable")
    except AclgradError as fault:
        refusal("aclCreateScalar", fault, aclnn_status)
        return 0
    stored = bytearray(ctypes.string_at(value, dtype.itemsize))
    if dtype is torch.bool:
        stored[0] = stored[0] != 0
    return FUNCTIONS["aclCreateScalar"](torch.frombuffer(stored, dtype=dtype)[0].item(), data_type)


class _PtrAttributes(ctypes.Structure):
    """aclrtPtrAttributes."""

    _fields_ = (
        ("device", ctypes.c_uint32),
        ("type", ctypes.c_int),
        ("page_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 4),
    )


def _pointer_attributes(ptr: int, room: int) -> int:
    name, size = "aclrtPointerGetAttributes", ctypes.sizeof(_PtrAttributes)
    if not room or not raw.accessible(room, size, write=True):
        return refusal(name, untouchable("attributes", room, size, "writable"), runtime_code)
    found, code = FUNCTIONS[name](ptr)
    if code == SUCCESS:
        written = _PtrAttributes.from_address(room)
        written.device, written.type, written.page_size = found
    return int(code)


def _desc_name(desc: int) -> bytes:
    """The name of a description; its bytes live until the thread's next call of this."""
    name: bytes = FUNCTIONS["aclGetTensorDescName"](desc).encode("utf-8", "backslashreplace")
    _thread.name = name
    return name


def _dump_tensors(kind: bytes, name: bytes, tensors: int, inputs: int, outputs: int, stream: int) -> int:
    """aclDumpOpTensors with the handles of an array."""
    function, count = FUNCTIONS["aclDumpOpTensors"], inputs + outputs
    size = count * ctypes.sizeof(ctypes.c_size_t)
    if not tensors:
        return int(function(kind, name, None, inputs, outputs, stream))
    if not raw.accessible(tensors, size, write=False):
        return refusal("aclDumpOpTensors", untouchable("tensors", tensors, size, "readable"), aclnn_status)
    handles = list((ctypes.c_size_t * count).from_address(tensors)) if count else []
    return int(function(kind, name, handles, inputs, outputs, stream))


def app_log(level: int, function: int, file: int, line: int, text: int) -> None:
    """What the program logs, through Python's log."""
    where = f"{os.fsdecode(text_at('file', file) or b'')}:{line} {(text_at('func', function) or b'').decode()}"
    message = (text_at("fmt", text) or b"").decode(errors="replace").rstrip()
    logging.getLogger("aclgrad.app").log(_LOG_LEVELS.get(level, logging.INFO), "%s: %s", where, message)


SPECIAL: dict[str, Callable[..., Any]] = {
    "aclrtPointerGetAttributes": _pointer_attributes,
    "aclGetTensorDescName": _desc_name,
    "aclCreateTensorDesc": lambda kind, _, dims, layout: FUNCTIONS["aclCreateTensorDesc"](kind, dims, layout),
    "aclSetTensorShape": lambda desc, _, dims: FUNCTIONS["aclSetTensorShape"](desc, dims),
    "aclSetTensorStorageShape": lambda desc, _, dims: FUNCTIONS["aclSetTensorStorageShape"](desc, dims),
    "aclGetRecentErrMsg": _recent_message,
    "aclrtGetSocName": _soc_name,
    "aclCreateScalar": _create_scalar,
    "aclDumpOpTensors": _dump_tensors,
}
"""By name: what the library calls instead of the function itself."""
