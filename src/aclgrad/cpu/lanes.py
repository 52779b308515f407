"""Memory seen from inside a kernel: pointers whose type knows the element's dtype.

`p[i]` reads an element and widens it exactly (half types to float32, integers and bool to int64); `p[i] = v` rounds a
value to the element's dtype once, to nearest even; `p + n` moves by n elements. One kernel body so serves every mix of
dtypes, and because the pointer's *type* decides, the loops around it vectorise.

Pointers that arrive as different kernel arguments are promised to LLVM not to overlap (each argument is an alias
scope), which is what lets a loop over a dozen arrays vectorise at all. An output that is exactly the same view as an
input keeps that promise as far as an elementwise loop can tell, as long as it reads an element before it writes it.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from .elements import DOUBLE, ELEMENTS, I8, narrow, widen
from .elements import I16 as I16
from .elements import I32 as I32
from .elements import I64 as I64

ADDRESS = I8.as_pointer()

ALIAS_SCOPES = 32
"""Kernel arguments beyond this many make no promise about aliasing."""


class Pointer(types.Type):
    """Address of elements of a torch dtype.

    `scope` is the kernel argument it came from, None if unknown. `step` is the distance between p[i] and p[i + 1]: 1,
    or 0 for one element that serves all.
    """

    def __init__(self, dtype: torch.dtype, scope: int | None = None, step: int = 1) -> None:
        if dtype not in ELEMENTS:
            raise TypeError(f"kernels cannot address {dtype}, only {', '.join(str(d) for d in ELEMENTS)}")
        self.dtype = dtype
        self.scope = scope if scope is not None and scope < ALIAS_SCOPES else None
        self.step = step
        super().__init__(name=f"{type(self).__name__}({dtype}, {self.scope}, {step})")


@register_model(Pointer)
class PointerModel(models.PrimitiveModel):
    """Just the address."""

    def __init__(self, manager: Any, pointer: Pointer) -> None:
        super().__init__(manager, pointer, ADDRESS)


def move(builder: ir.IRBuilder, pointer: Pointer, address: ir.Value, count: ir.Value) -> ir.Value:
    """Emit the address `count` elements further on."""
    element = ELEMENTS[pointer.dtype].memory.as_pointer()
    return builder.bitcast(builder.gep(builder.bitcast(address, element), [count]), ADDRESS)


def _at(context: Any, builder: ir.IRBuilder, pointer: Pointer, value: ir.Value, index: ir.Value) -> ir.Value:
    """The typed address of p[index]."""
    at = move(builder, pointer, value, index) if pointer.step != 0 else value
    return builder.bitcast(at, ELEMENTS[pointer.dtype].memory.as_pointer())


def _keep_apart(builder: ir.IRBuilder, pointer: Pointer, access: ir.Instruction) -> None:
    """Tell LLVM that this access overlaps no access through another argument."""
    if pointer.scope is None:
        return
    module = builder.module
    domain = module.add_metadata(["aclgrad arguments"])
    scopes = [module.add_metadata([f"argument {k}", domain]) for k in range(ALIAS_SCOPES)]
    access.set_metadata("alias.scope", module.add_metadata([scopes[pointer.scope]]))
    access.set_metadata("noalias", module.add_metadata([s for k, s in enumerate(scopes) if k != pointer.scope]))


def emit_load(context: Any, builder: ir.IRBuilder, pointer: Pointer, value: ir.Value, index: ir.Value) -> ir.Value:
    """Emit p[index]."""
    raw = builder.load(_at(context, builder, pointer, value, index), align=pointer.dtype.itemsize)
    _keep_apart(builder, pointer, raw)
    return widen(builder, pointer.dtype, raw)


def emit_store(
    context: Any, builder: ir.IRBuilder, pointer: Pointer, value: ir.Value, index: ir.Value, number: ir.Value
) -> None:
    """Emit p[index] = number, where the number is of a type that `narrow` takes."""
    element = narrow(builder, pointer.dtype, number)
    at = _at(context, builder, pointer, value, index)
    _keep_apart(builder, pointer, builder.store(element, at, align=pointer.dtype.itemsize))


def stored_as(pointer: Pointer, number: types.Type) -> types.Type:
    """The type a number must have to be narrowed to the pointer's element."""
    if not pointer.dtype.is_floating_point:
        return types.int64
    return number if number == types.float32 else types.float64


@intrinsic(prefer_literal=True)
def apart(typing: Any, pointer: Any, part: Any) -> Any:
    """The pointer as the `part`-th (a constant) of several that never meet, though they come from one argument."""
    alone = type(pointer)(pointer.dtype, ALIAS_SCOPES - 1 - part.literal_value, pointer.step)

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return args[0]

    return alone(pointer, part), emit


@intrinsic
def pointer_at(typing: Any, address: Any, like: Any) -> Any:
    """An integer address as a pointer to elements of the dtype of `like`, of unknown origin."""
    pointer = Pointer(like.dtype)

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.inttoptr(context.cast(builder, args[0], address, types.int64), ADDRESS)

    return pointer(address, like), emit


@cache
def pointer_to(dtype: torch.dtype) -> Any:
    """`pointer(address)`: an integer as a pointer to elements of a dtype, of unknown origin."""
    pointer = Pointer(dtype)

    @intrinsic
    def at(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            return builder.inttoptr(context.cast(builder, args[0], address, types.int64), ADDRESS)

        return pointer(address), emit

    return at


@intrinsic
def address_of(typing: Any, pointer: Any) -> Any:
    """A pointer as an integer."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.ptrtoint(args[0], I64)

    return types.int64(pointer), emit


@intrinsic
def cast(typing: Any, number: Any, like: Any) -> Any:
    """A number in the type of another one, or of what a pointer reads: a constant must not widen float32 it meets."""
    result = ELEMENTS[like.dtype].value if isinstance(like, Pointer) else like

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return context.cast(builder, args[0], number, result)

    return result(number, like), emit


@intrinsic
def rounded_as(typing: Any, number: Any, like: Any) -> Any:
    """A number as it comes back from memory that a pointer points to."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        given = context.cast(builder, args[0], number, stored_as(like, number))
        return widen(builder, like.dtype, narrow(builder, like.dtype, given))

    return ELEMENTS[like.dtype].value(number, like), emit


DTYPE_CODES = {dtype: code for code, dtype in enumerate(ELEMENTS)}
"""Numbers for dtypes that a kernel knows at run time only."""


@intrinsic
def load_any(typing: Any, address: Any, code: Any, index: Any) -> Any:
    """The element at `index`, of the dtype with that code, as float64. Slow: for vectors not worth specialising for."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        start, which, position = args
        joined = builder.append_basic_block("loaded")
        result_from = []
        impossible = builder.append_basic_block("no such dtype")
        switch = builder.switch(which, impossible)
        for dtype, number in DTYPE_CODES.items():
            block = builder.append_basic_block(str(dtype))
            switch.add_case(I64(number), block)
            builder.position_at_end(block)
            element = emit_load(context, builder, Pointer(dtype), builder.inttoptr(start, ADDRESS), position)
            result_from.append((context.cast(builder, element, ELEMENTS[dtype].value, types.float64), builder.block))
            builder.branch(joined)
        builder.position_at_end(impossible)
        builder.unreachable()
        builder.position_at_end(joined)
        result = builder.phi(DOUBLE)
        for value, block in result_from:
            result.add_incoming(value, block)
        return result

    return types.float64(types.int64, types.int64, types.int64), emit


# The operators are typed and lowered directly: an `overload` would compile a function for every type of pointer.


@type_callable(operator.getitem)
def _type_getitem(context: Any) -> Any:
    def typer(pointer: Any, index: Any) -> Any:
        return ELEMENTS[pointer.dtype].value if isinstance(pointer, Pointer) else None

    return typer


@lower_builtin(operator.getitem, Pointer, types.Integer)
def _getitem(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
    pointer, index = signature.args
    return emit_load(context, builder, pointer, args[0], context.cast(builder, args[1], index, types.int64))


@type_callable(operator.setitem)
def _type_setitem(context: Any) -> Any:
    def typer(pointer: Any, index: Any, number: Any) -> Any:
        return types.none if isinstance(pointer, Pointer) else None

    return typer


@lower_builtin(operator.setitem, Pointer, types.Integer, types.Number)
def _setitem(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
    pointer, index, number = signature.args
    position = context.cast(builder, args[1], index, types.int64)
    rounded = context.cast(builder, args[2], number, stored_as(pointer, number))
    emit_store(context, builder, pointer, args[0], position, rounded)
    return context.get_dummy_value()


@type_callable(operator.add)
def _type_add(context: Any) -> Any:
    def typer(pointer: Any, count: Any) -> Any:
        return pointer if isinstance(pointer, Pointer) and isinstance(count, types.Integer) else None

    return typer


@lower_builtin(operator.add, Pointer, types.Integer)
def _add(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
    pointer, count = signature.args
    return move(builder, pointer, args[0], context.cast(builder, args[1], count, types.int64))
