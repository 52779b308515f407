"""Procedures: kernels that are compiled once, by themselves, and called by name from any other.

A function that a kernel calls in the ordinary way is compiled again as a part of it, at every level of calls. That is
right for a few lines; a procedure is for a body that takes long to compile, and long enough to run that a real call
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compiler import Word, entry
from .lanes import ADDRESS, I64

_ALONE = (0, 1, *[0] * (len(Word) - 2))
_compiled: dict[str, Any] = {}  # machine code must outlive everything that was linked to it


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that is made several times over, each time under a name of its own.

    Machine code goes by its function's name and argument types: code loaded from disk must not meet a namesake.
    """
    function.__name__ = function.__qualname__ = name
    return function


def _emit_call(context: Any, builder: Any, target: Any, args: Any, kinds: Any, first: int = 0) -> None:
    """Call a kernel's C entry with the packed arguments from `first` on, on this thread alone."""
    words = [I64(word) for word in _ALONE]
    for index, kind in list(enumerate(kinds))[first:]:
        words.append(context.cast(builder, builder.extract_value(args, index), kind, types.int64))
    block = cgutils.alloca_once(builder, ir.ArrayType(I64, len(words)))
    for index, value in enumerate(words):
        builder.store(value, builder.gep(block, [I64(0), I64(index)]))
    builder.call(target, [builder.bitcast(block, ADDRESS)])


_ENTRY = ir.FunctionType(ir.VoidType(), [ADDRESS])


@intrinsic
def call_at(typing: Any, *args: Any) -> Any:
    """`call_at(address, *integers)`: call a kernel that takes 64-bit integers, by the address of its C entry."""
    packed = types.StarArgTuple.from_types(args)

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        target = builder.inttoptr(builder.extract_value(values[0], 0), _ENTRY.as_pointer())
        _emit_call(context, builder, target, values[0], args, 1)
        return context.get_dummy_value()

    return types.void(packed), emit


def procedure(kernel: Callable[..., None], name: str, arguments: int) -> Any:
    """A kernel that takes that many 64-bit integers, as other kernels call it: on the calling thread alone.

    The name stands for the machine code in the whole process, and in kernels kept on disk: it tells all that decided
    what the kernel does.
    """
    symbol = f"aclgrad_{name}"
    if symbol not in _compiled:
        named(kernel, name)
        _compiled[symbol] = entry(kernel, (int,) * arguments)
        binding.add_symbol(symbol, _compiled[symbol].address)

    @intrinsic
    def call(typing: Any, *args: Any) -> Any:
        packed = types.StarArgTuple.from_types(args)

        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
            target = cgutils.get_or_insert_function(builder.module, _ENTRY, symbol)
            _emit_call(context, builder, target, values[0], args)
            return context.get_dummy_value()

        return types.void(packed), emit

    return call
