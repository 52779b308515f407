"""Turn a Python function into machine code that every thread of a group enters with the same argument block.

A kernel is a plain function `kernel(thread, threads, *args)`. Its C entry is `void(block)`: the block is a row of
8-byte words, first the group's (see `Word`), then one for each argument. Machine code is kept on disk (see `store`)
under a name that covers the signature and the text of every source file it was made from.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias

import numba
import torch
from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from ..core.errors import Prevented, Unsupported
from ..core.first_calls import compiled, compiling
from .elements import DOUBLE, I32, I64
from .lanes import ADDRESS, Pointer
from .parts import AS_A_PART
from .store import cfunc

PACKAGE = __name__.partition(".")[0]

OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
"""IEEE arithmetic, NaN and signed zero included; only the contraction of a product and a sum is allowed."""


class Word(IntEnum):
    """The words at the head of an argument block."""

    THREAD = 0  # index in the group; negative: ask the function at OMP_THREAD
    THREADS = 1  # of the group, unless asked
    OMP_THREAD = 2  # omp_get_thread_num
    OMP_THREADS = 3  # omp_get_num_threads
    BARRIER = 4  # two counters that the threads of a group share, for barriers
    YIELD = 5  # the function by which a waiting thread offers its core to others


class ThreadGroup(types.Type):
    """The threads that run a kernel, an argument that costs no word; `barrier(group)` is what it is for."""

    def __init__(self) -> None:
        super().__init__(name="thread_group")


@register_model(ThreadGroup)
class ThreadGroupModel(models.PrimitiveModel):
    """The address of the argument block."""

    def __init__(self, manager: Any, group: ThreadGroup) -> None:
        super().__init__(manager, group, ADDRESS)


THREAD_GROUP = ThreadGroup()


Argument: TypeAlias = "type[int] | type[float] | torch.dtype | ThreadGroup | None"
"""How a signature describes an argument: `int`, `float`, a dtype for a pointer, THREAD_GROUP, or None."""

Signature: TypeAlias = tuple[Argument, ...]


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function that kernels alone call, under the same rules of arithmetic unless `options` say otherwise."""
    if numba.config.DISABLE_JIT:
        _left_as_python.append(function)
    return numba.njit(function, **{**OPTIONS, **AS_A_PART, **options})


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function that becomes part of every loop that calls it, however long it is."""
    return jit(function, forceinline=True)


def overload(function: Callable[..., Any]) -> Callable[..., Any]:
    """numba's `overload`, by which the types of arguments choose what a function means, for functions of kernels."""
    decorated: Callable[..., Any] = numba.extending.overload(function, strict=False, jit_options=AS_A_PART)
    return decorated


_left_as_python: list[Any] = []
"""What numba was told not to compile, and no kernel can call."""


def require_compilation() -> None:
    """Refuse where numba is switched off: kernels work on bare addresses, so they cannot run as Python."""
    if numba.config.DISABLE_JIT or _left_as_python:
        raise Prevented(
            "NUMBA_DISABLE_JIT is set, expected it unset from the start: the kernels cannot run as Python; "
            'backend="reference" can'
        )


PLAIN: dict[Any, tuple[types.Type, str]] = {
    int: (types.int64, "q"),
    float: (types.float64, "d"),
    None: (types.none, ""),
    THREAD_GROUP: (THREAD_GROUP, ""),
}
"""Type and `struct` format of the arguments that are not pointers."""


def argument_types(signature: Signature) -> list[types.Type]:
    """The numba types of a kernel's arguments; every pointer is an alias scope of its own."""
    return [_argument_type(argument, scope) for scope, argument in enumerate(signature)]


def _argument_type(argument: Argument, scope: int) -> types.Type:
    return Pointer(argument, scope) if isinstance(argument, torch.dtype) else PLAIN[argument][0]


def packing(signature: Signature) -> str:
    """The `struct` format of the arguments that take a word."""
    return "=" + "".join("q" if isinstance(item, torch.dtype) else PLAIN[item][1] for item in signature)


def word(builder: ir.IRBuilder, block: ir.Value, index: int) -> ir.Value:
    """Emit the read of one word of the argument block."""
    at = I64(int(index))  # a member of an enum prints its name in Python 3.10
    return builder.load(builder.gep(builder.bitcast(block, I64.as_pointer()), [at]))


def _ask(builder: ir.IRBuilder, block: ir.Value, given: Word, function: Word) -> ir.Value:
    """The group's word `given`, or what OpenMP's `function` answers if the block is shared by OpenMP's threads."""
    value = word(builder, block, given)
    with builder.if_else(builder.icmp_signed("<", word(builder, block, Word.THREAD), I64(0))) as (shared, own):
        with shared:
            address = builder.inttoptr(word(builder, block, function), ir.FunctionType(I32, ()).as_pointer())
            asked = builder.sext(builder.call(address, ()), I64)
            asked_in = builder.block
        with own:
            given_in = builder.block
    answer = builder.phi(I64)
    answer.add_incoming(asked, asked_in)
    answer.add_incoming(value, given_in)
    return answer


@intrinsic
def group_index(typing: Any, block: Any) -> Any:
    """The index of the calling thread in its group."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _ask(builder, args[0], Word.THREAD, Word.OMP_THREAD)

    return types.int64(block), emit


@intrinsic
def group_size(typing: Any, block: Any) -> Any:
    """The number of threads that run with this block."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return _ask(builder, args[0], Word.THREADS, Word.OMP_THREADS)

    return types.int64(block), emit


def _unpacker(arguments: list[types.Type]) -> Any:
    """An intrinsic that turns the words of a block into a tuple of arguments."""
    result = types.Tuple(arguments)

    @intrinsic
    def unpack(typing: Any, block: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            values = []
            position = len(Word)
            for argument in arguments:
                if argument in (THREAD_GROUP, types.none):
                    values.append(args[0] if argument == THREAD_GROUP else context.get_dummy_value())
                    continue
                raw = word(builder, args[0], position)
                position += 1
                if isinstance(argument, Pointer):
                    raw = builder.inttoptr(raw, ADDRESS)
                values.append(builder.bitcast(raw, DOUBLE) if argument == types.float64 else raw)
            return context.make_tuple(builder, result, values)

        return result(block), emit

    return unpack


ENTRY = """def {name}(block):
    kernel(thread(block), threads(block), *unpack(block))
"""

_compiling = RLock()  # a kernel may need another one compiled first

if hasattr(os, "register_at_fork"):  # a child must not find it held by a thread that it does not have
    os.register_at_fork(
        before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_compiling.release
    )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Compiling makes objects by the hundred thousand and drops few: looking for these takes a seventh of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@cache
def require_half_conversions() -> None:
    """Refuse x86 CPUs that cannot convert half precision: LLVM would call library functions that are not there."""
    machine = llvm.get_process_triple().partition("-")[0]
    if machine in ("x86_64", "i686", "i386") and not llvm.get_host_cpu_features().get("f16c", False):
        raise Unsupported("needs a CPU that converts half precision (F16C)")


@cache
def entry(kernel: Callable[..., None], signature: Signature) -> Any:
    """The compiled C function `void(block)` of a kernel; from the disk if this very code was compiled before."""
    require_compilation()
    require_half_conversions()
    arguments = argument_types(signature)
    namespace = {
        "__name__": kernel.__module__,
        "kernel": jit(kernel),
        "thread": group_index,
        "threads": group_size,
        "unpack": _unpacker(arguments),
    }
    family = f"{kernel.__name__}_{_digest(repr((arguments, OPTIONS)).encode())}_"
    name = family + _digest(*(source.read_bytes() for source in sorted(_sources(kernel))))
    file = inspect.getfile(kernel)  # decides where the cache lies
    above = "\n" * (kernel.__code__.co_firstlineno - 1)  # numba reads the lines there, which must be a function's
    exec(compile(above + ENTRY.format(name=name), file, "exec"), namespace)  # noqa: S102  # nothing but ENTRY
    with _compiling, _collector_at_rest(), compiling(kernel.__name__):
        code = cfunc(namespace[name], types.void(types.voidptr), OPTIONS, family)
    if not code.cache_hits:
        compiled.append(kernel.__name__)
    return code


def _digest(*texts: bytes) -> str:
    joined = hashlib.sha256()
    for text in texts:
        joined.update(text)
    return joined.hexdigest()[:12]


def _sources(kernel: Callable[..., None]) -> set[Path]:
    """Source files that decide what a kernel compiles to: those of all functions it reaches, and the toolbox's own."""
    toolbox = {Path(__file__).with_name(f"{name}.py") for name in ("compiler", "elements", "lanes", "parts", "threads")}
    return toolbox | {Path(inspect.getfile(function)) for function in _reached(kernel, set())}


def _reached(function: Any, seen: set[Any]) -> Iterator[Any]:
    """The function and, recursively, the compiled functions and intrinsics it names."""
    seen.add(function)
    yield function
    scope = inspect.getclosurevars(function)
    for value in (*scope.globals.values(), *scope.nonlocals.values()):
        inner = inspect.unwrap(value) if callable(value) else None
        ours = inspect.isfunction(inner) and (inner is not value or inner.__module__.startswith(PACKAGE))
        if ours and inner not in seen:
            yield from _reached(inner, seen)
