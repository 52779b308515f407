"""What is judged: somebody's function, called in the document's order, in Python or in C."""

from __future__ import annotations

import ctypes
import inspect
from _ctypes import CFuncPtr
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...core.errors import BadDump, InvalidArgument
from ...core.memory import tensors_in
from ...core.meta import dtype_name
from ...core.plan import Operator, allocated
from ...core.spec import OpSpec, OutList
from ..verification.arrays import as_tensors, require_values

Sizes = Callable[..., Sequence[int]]


class Misfit(Exception):
    """A function does not answer as the operator's document says."""


class Subject(Protocol):
    """A function to judge. It may write to memory that it is given, and may take any strides."""

    takes_out: bool
    takes_strides: bool
    may_refuse: bool

    def __call__(self, args: Sequence[Any], outs: Sequence[Any] | None = None) -> list[Any]:
        """What a call writes: its outputs, then what it updates in place."""
        ...


def subjects(
    fn: Any, operator: Operator, sizes: Sizes | None, dtypes: Sequence[torch.dtype]
) -> dict[torch.dtype, Subject]:
    """What stands for each dtype: one function for all, or a function for each."""
    table = fn if isinstance(fn, Mapping) else dict.fromkeys(dtypes, fn)
    unknown = [dtype for dtype in table if dtype not in dtypes]
    if unknown:
        names = ", ".join(map(dtype_name, dtypes))
        raise InvalidArgument(f"fn has a function for {dtype_name(unknown[0])}, expected some of {names}", "fn")
    return {dtype: _subject(each, operator, sizes) for dtype, each in table.items()}


def _subject(fn: Any, operator: Operator, sizes: Sizes | None) -> Subject:
    if not callable(fn):
        raise InvalidArgument(f"fn is {type(fn).__name__}, expected something to call", "fn")
    if isinstance(fn, CFuncPtr):
        if sizes is None:
            raise InvalidArgument(
                "fn is a C function, expected sizes=…: how its sizes follow from the arguments", "sizes"
            )
        return InC(fn, operator, sizes)
    return InPython(fn, operator.spec)


class InPython:
    """A callable that takes the arguments and returns the outputs; it may have a keyword `out` for memory of theirs."""

    takes_strides = True
    may_refuse = True

    def __init__(self, fn: Callable[..., Any], spec: OpSpec) -> None:
        self.fn, self.spec = fn, spec
        try:
            self.takes_out = bool(spec.outs) and "out" in inspect.signature(fn).parameters
        except (TypeError, ValueError):  # built in
            self.takes_out = False

    def __call__(self, args: Sequence[Any], outs: Sequence[Any] | None = None) -> list[Any]:
        """Call it."""
        spec = self.spec
        given = {} if outs is None else {"out": outs[0] if len(outs) == 1 else tuple(outs)}
        found = _readable(self.fn(*args, **given))
        if not spec.outs:
            return list(spec.written(args, []))
        if found is None and outs is not None:
            found = outs[0] if len(outs) == 1 else tuple(outs)
        alone = len(spec.outs) == 1 and isinstance(found, list if isinstance(spec.outs[0], OutList) else Tensor)
        results = [found] if alone else found
        if not isinstance(results, list | tuple):
            names = ", ".join(spec.out_names)
            raise Misfit(f"returned {type(found).__name__}, expected a tuple of {len(spec.outs)}: {names}")
        if len(results) > len(spec.outs):
            raise Misfit(f"returned {len(results)} results, expected {len(spec.outs)}: {', '.join(spec.out_names)}")
        return list(spec.written(args, [*results, *[None] * (len(spec.outs) - len(results))]))


def _readable(found: Any) -> Any:
    """What a function returned, arrays of numpy as tensors."""
    try:
        found = as_tensors(found) if isinstance(found, np.ndarray | list | tuple) else found
        for tensor in tensors_in([found]):
            require_values("a result", tensor)
    except BadDump as fault:
        raise Misfit(str(fault)) from None
    return found


class InC:
    """A C function of addresses: of all tensors in the document's order, inputs, then outputs.

    A null pointer stands for a tensor that is absent, an array of addresses for a list of tensors, an array of bytes
    for one of bools. Numbers stand between them as they are: double, int64_t, bool. Last come the sizes, as int64_t.
    With `argtypes` the function says itself what it takes. Every tensor is contiguous.
    """

    takes_out = True
    takes_strides = False
    may_refuse = False

    def __init__(self, fn: Any, operator: Operator, sizes: Sizes) -> None:
        self.fn, self.operator, self.sizes = fn, operator, sizes

    def __call__(self, args: Sequence[Any], outs: Sequence[Any] | None = None) -> list[Any]:
        """Call it, with memory of its own if none is given."""
        if outs is None:
            _, produced = self.operator.judge(args, asked=True)
            outs = allocated(produced)
        values = [*args, *outs, *map(int, self.sizes(*args))]
        self.fn(*(_in_c(value, typed=self.fn.argtypes is not None) for value in values))
        return list(self.operator.spec.written(args, outs))


def _in_c(value: Any, *, typed: bool) -> Any:
    """A value for ctypes; where the function says what it takes, numbers and addresses are left to it."""
    if isinstance(value, list | tuple):
        if any(isinstance(item, Tensor) for item in value):
            return (ctypes.c_void_p * len(value))(*(None if item is None else item.data_ptr() for item in value))
        return (ctypes.c_bool * len(value))(*value)
    if value is None or isinstance(value, Tensor):
        address = None if value is None else value.data_ptr()
        return address if typed else ctypes.c_void_p(address)
    if typed:
        return value
    kinds = {bool: ctypes.c_bool, int: ctypes.c_int64, float: ctypes.c_double}
    return kinds[type(value)](value)
