"""Between C arguments, which arrive as numbers, and the Python functions behind them.

A function whose parameters are all plain values takes them as they come. For the others, strings and arrays are read
before the call, and results are written behind out-pointers after it, if it succeeded. An address is asked about before
it is followed, so a wild one is an error and not a crash.
"""

from __future__ import annotations

import ctypes
import struct
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from ... import acl as _acl  # noqa: F401  # the runtime's functions become known
from ... import aclnn as _aclnn  # noqa: F401  # so do the operators'
from ...core.errors import AclgradError, InvalidArgument, NullArgument
from ..acl import raw
from ..acl.boundary import FUNCTIONS, aclnn_status, refusal, remember, runtime_code
from ..acl.enums import SUCCESS
from ..acl.places import PACKAGE
from . import foreign, places
from .pointers import PAGE, text_at, untouchable
from .prototypes import COUNTS, NULLABLE_OUTS, Parameter, Prototype, Role, fingerprint, prototypes
from .special import SPECIAL, app_log

Function = Callable[..., Any]
Reader = Callable[[Sequence[Any]], Any]

LARGEST_RESULT = ctypes.sizeof(ctypes.c_uint64)


def start(built_for: str, caller: int, tracing: int, embedded: int) -> tuple[Function, ...]:
    """Called once by the library: its functions in the order of their numbers, then what takes note of exceptions.

    `built_for` is the fingerprint of the prototypes it was built from; `embedded` says whether it has started this
    Python. For `caller` and `tracing` see `places.use`.
    """
    if built_for != fingerprint():
        raise RuntimeError(
            "the library was built from another version of aclgrad, or with other custom operators; "
            "run `aclgrad capi build` again"
        )
    places.use(caller, tracing, bool(embedded))
    if embedded:
        warnings.formatwarning = _as_a_line
    table = prototypes()
    return (*[adapter(prototype) for prototype in table], foreign_call, app_log, _note_exception)


def _as_a_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as a C program's user reads it, to whom Python's files and lines mean nothing."""
    del category, lineno, line
    return f"{'aclgrad: ' if filename.startswith(PACKAGE) else ''}{message}\n"


def foreign_call(name: int) -> int:
    """A function of CANN that is only declared."""
    return foreign.call((text_at("name", name) or b"").decode())


def adapter(prototype: Prototype) -> Function:
    """The function that the library calls for a prototype, with one argument for each of its parameters."""
    function = SPECIAL.get(prototype.name, FUNCTIONS[prototype.name])
    if all(param.role is Role.VALUE for param in prototype.params):
        return function
    read = _reader_of_all(prototype)
    slots = [_Slot(index, prototype.params[index]) for index in _indices(prototype, Role.OUT, Role.OUT_ARRAY)]
    code_of = runtime_code if prototype.returns == "aclError" else aclnn_status
    returns_code = prototype.returns in ("aclError", "aclnnStatus")

    def call(*words: Any) -> Any:
        try:
            _check_room(slots, words)
            values = read(words)
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


def _reader_of_all(prototype: Prototype) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What turns the words of a call into all Python arguments."""
    indices = _indices(prototype, Role.VALUE, Role.TEXT, Role.ARRAY)
    if len(indices) > 1 and indices == _indices(prototype, Role.VALUE):
        return itemgetter(*indices)
    readers = [_reader(prototype, index) for index in indices]
    return lambda words: [read(words) for read in readers]


def _reader(prototype: Prototype, index: int) -> Reader:
    """What turns the words of a call into the Python argument for one parameter."""
    param = prototype.params[index]
    if param.role is Role.TEXT:
        return lambda words: text_at(param.name, words[index])
    if param.role is Role.ARRAY:
        names = [other.name for other in prototype.params]
        return _array_reader(param, index, names.index(COUNTS[param.name]))
    return lambda words: words[index]


def _array_reader(param: Parameter, index: int, count_index: int) -> Reader:
    size, code, is_bool = ctypes.sizeof(param.element), param.element._type_, param.target == "bool"

    def read(words: Sequence[Any]) -> Any:
        address, count = words[index], words[count_index]
        if count < 0:
            raise InvalidArgument(f"the number of {param.name} is {count}, expected at least 0", param.name)
        if not address:
            return None
        if not raw.accessible(address, count * size, write=False):
            raise untouchable(param.name, address, count * size, "readable")
        values = struct.unpack(f"{count}{code}", ctypes.string_at(address, count * size))
        return [value != 0 for value in values] if is_bool else values

    return read


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
            raise untouchable(self._name, address, self._size, "writable")

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


def _note_exception(function: int, error: BaseException) -> None:
    """Called by the library for an exception that no boundary has caught."""
    name = prototypes()[function].name
    remember(f"{name}: {type(error).__name__}: {error}")
