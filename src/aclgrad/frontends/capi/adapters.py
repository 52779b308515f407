"""Between C arguments, which arrive as numbers, and the Python functions behind them.

A function whose parameters are all plain values takes them as they come. For the others, strings and arrays are read
before the call, and results are written behind out-pointers after it, if it succeeded. An address is asked about before
it is followed, so a wild one is an error and not a crash.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from ... import acl as _acl  # noqa: F401  # the runtime's functions become known
from ... import aclnn as _aclnn  # noqa: F401  # so do the operators'
from ...core.errors import AclgradError, InvalidArgument, NullArgument
from ..acl import raw
from ..acl.arguments import member
from ..acl.boundary import FUNCTIONS, aclnn_status, refusal, remember, runtime_code
from ..acl.enums import SUCCESS, TORCH_DTYPES, AclDataType
from . import places
from .prototypes import COUNTS, NULLABLE_OUTS, Parameter, Prototype, Role, fingerprint, prototypes

Function = Callable[..., Any]
Reader = Callable[[Sequence[Any]], Any]

PAGE = 4096
LARGEST_RESULT = ctypes.sizeof(ctypes.c_uint64)
LONGEST_TEXT = 1 << 16

_thread = threading.local()


def start(built_for: str, caller: int, tracing: int, embedded: int) -> tuple[Function, ...]:
    """Called once by the library: its functions in the order of their numbers, then what takes note of exceptions.

    `built_for` is the fingerprint of the prototypes it was built from; `embedded` says whether it has started this
    Python. For `caller` and `tracing` see `places.use`.
    """
    if built_for != fingerprint():
        raise RuntimeError("the library was built from another version of aclgrad; run `aclgrad capi build` again")
    places.use(caller, tracing, bool(embedded))
    table = prototypes()
    return (*[adapter(prototype) for prototype in table], _note_exception)


def adapter(prototype: Prototype) -> Function:
    """The function that the library calls for a prototype, with one argument for each of its parameters."""
    function = _SPECIAL.get(prototype.name, FUNCTIONS[prototype.name])
    if all(param.role is Role.VALUE for param in prototype.params):
        return function
    readers = [_reader(prototype, index) for index in _indices(prototype, Role.VALUE, Role.TEXT, Role.ARRAY)]
    slots = [_Slot(index, prototype.params[index]) for index in _indices(prototype, Role.OUT, Role.OUT_ARRAY)]
    code_of = runtime_code if prototype.returns == "aclError" else aclnn_status
    returns_code = prototype.returns in ("aclError", "aclnnStatus")

    def call(*words: Any) -> Any:
        try:
            _check_room(slots, words)
            values = [read(words) for read in readers]
        except AclgradError as fault:
            code = refusal(prototype.name, fault, code_of)
            return code if returns_code else 0
        answer = function(*values)
        if not slots:
            return answer
        *results, code = answer
        if code == SUCCESS:
            for slot, result in zip(slots, results, strict=True):
                slot.write(words, result)
        return code

    return call


def _indices(prototype: Prototype, *roles: Role) -> list[int]:
    return [index for index, param in enumerate(prototype.params) if param.role in roles]


def _reader(prototype: Prototype, index: int) -> Reader:
    """What turns the words of a call into the Python argument for one parameter."""
    param = prototype.params[index]
    if param.role is Role.TEXT:
        return lambda words: _text(param.name, words[index])
    if param.role is Role.ARRAY:
        names = [other.name for other in prototype.params]
        return _array_reader(param, index, names.index(COUNTS[param.name]))
    return lambda words: words[index]


def _array_reader(param: Parameter, index: int, count_index: int) -> Reader:
    size, code, is_bool = ctypes.sizeof(param.element), param.element._type_, param.target == "bool"

    def read(words: Sequence[Any]) -> Any:
        address, count = words[index], words[count_index]
        if not address:
            return None
        if not raw.accessible(address, count * size, write=False):
            raise _untouchable(param.name, address, count * size, "readable")
        values = struct.unpack(f"{count}{code}", ctypes.string_at(address, count * size))
        return [value != 0 for value in values] if is_bool else values

    return read


def _text(name: str, address: int) -> bytes | None:
    """The string at an address, without its final zero."""
    if not address:
        return None
    text = b""
    while len(text) < LONGEST_TEXT:
        start = address + len(text)
        room = PAGE - start % PAGE
        if not raw.accessible(start, room, write=False):
            raise _untouchable(name, start, 1, "readable")
        length = _length()(start, room)  # sees nothing behind the zero, as a sanitizer insists
        text += ctypes.string_at(start, length)
        if length < room:
            return text
    raise InvalidArgument(f"{name} has no end within {LONGEST_TEXT} bytes, expected a string", name)


@cache
def _length() -> Callable[[int, int], int]:
    """C's strnlen."""
    length: Any = ctypes.CDLL(None).strnlen
    length.restype, length.argtypes = ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_size_t)
    return length  # type: ignore[no-any-return]  # a ctypes function


class _Slot:
    """An out-parameter: room for a result, or for the address of a new array of results."""

    __slots__ = ("_element", "_is_array", "_name", "_nullable", "_size", "index")

    def __init__(self, index: int, param: Parameter) -> None:
        self.index = index
        self._name = param.name
        self._element = param.element
        self._size = ctypes.sizeof(param.element)
        self._is_array = param.role is Role.OUT_ARRAY
        self._nullable = param.name in NULLABLE_OUTS

    def check(self, words: Sequence[Any]) -> None:
        """Refuse room that is not there, before anything happens."""
        address = words[self.index]
        if not address:
            if not self._nullable:
                raise NullArgument(f"{self._name} is null, expected the address of a result", self._name)
        elif not raw.accessible(address, self._size, write=True):
            raise _untouchable(self._name, address, self._size, "writable")

    def write(self, words: Sequence[Any], result: Any) -> None:
        """Put the result of a successful call where it belongs."""
        address = words[self.index]
        if address:
            self._element.from_address(address).value = _new_array(result) if self._is_array else result


def _check_room(slots: Sequence[_Slot], words: Sequence[Any]) -> None:
    """Check all results' room; where it lies together, as local variables do, one question is enough."""
    if len(slots) > 1:
        addresses = [words[slot.index] for slot in slots]
        start, size = min(addresses), max(addresses) - min(addresses) + LARGEST_RESULT
        if start and size <= PAGE and raw.accessible(start, size, write=True):
            return
    for slot in slots:
        slot.check(words)


def _new_array(values: Sequence[int]) -> int:
    """The address of an array that the program will release."""
    block = _allocate()(max(len(values), 1) * ctypes.sizeof(ctypes.c_int64))
    if not block:
        raise MemoryError
    (ctypes.c_int64 * len(values)).from_address(block)[:] = list(values)
    return int(block)


@cache
def _allocate() -> Callable[[int], int | None]:
    """C++'s operator new[] in a program that has it, which releases with delete[]; malloc in others."""
    program = ctypes.CDLL(None)
    allocate: Any = getattr(program, "_Znam", None) or program.malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    return allocate  # type: ignore[no-any-return]  # a ctypes function


def _untouchable(name: str, address: int, size: int, expected: str) -> InvalidArgument:
    return InvalidArgument(f"{name} {address:#x} is not mapped for {size} bytes, expected {expected} memory", name)


def _note_exception(function: int, error: BaseException) -> None:
    """Called by the library for an exception that no boundary has caught."""
    name = prototypes()[function].name
    remember(f"{name}: {type(error).__name__}: {error}")


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
            raise _untouchable("value", value, dtype.itemsize, "readable")
    except AclgradError as fault:
        refusal("aclCreateScalar", fault, aclnn_status)
        return 0
    stored = bytearray(ctypes.string_at(value, dtype.itemsize))
    if dtype is torch.bool:
        stored[0] = stored[0] != 0
    return FUNCTIONS["aclCreateScalar"](torch.frombuffer(stored, dtype=dtype)[0].item(), data_type)


_SPECIAL: dict[str, Function] = {
    "aclGetRecentErrMsg": _recent_message,
    "aclrtGetSocName": _soc_name,
    "aclCreateScalar": _create_scalar,
}
"""Functions whose pointers mean something else than everywhere."""
