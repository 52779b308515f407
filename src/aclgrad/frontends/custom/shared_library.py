"""Functions in a shared library as kernels, or as the formula that results are judged by."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ...core.backends import Launch
from ...core.errors import AclgradError, Prevented, Unsupported
from ...core.meta import dtype_name
from ...core.plan import allocated
from ...core.registry import lookup
from ...core.spec import Call, OpSpec
from ..acl.enums import ACL_DATA_TYPES


class _Tensor(ctypes.Structure):
    """aclgradTensor of kernel.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dataType", ctypes.c_int),
        ("dimNum", ctypes.c_uint32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class _Value(ctypes.Structure):
    """aclgradValue of kernel.h."""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("tensors", ctypes.POINTER(_Tensor)),
        ("flags", ctypes.POINTER(ctypes.c_bool)),
        ("integer", ctypes.c_int64),
        ("number", ctypes.c_double),
    )


class SharedLibrary:
    """A library whose functions compute a family's operators; it is loaded when first used.

    A function takes `const aclgradValue *`, as kernel.h has it, and returns 0. It may be called by several threads at
    once.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def kernel(
        self, name: str, *, dtypes: Sequence[torch.dtype] | None = None, strided: bool = False
    ) -> Callable[[Call], Launch]:
        """What a family's `kernel_cpu` has under the operator's name: the function `name` computes it.

        The function gets contiguous tensors, copies where the caller's are not; `strided` ones only if it says so.
        With floating-point tensors of other `dtypes` than these the textbook does the work.
        """

        def make(call: Call) -> Launch:
            for label, meta in call.metas(*call.spec.params):
                if dtypes is not None and meta.dtype.is_floating_point and meta.dtype not in dtypes:
                    known = ", ".join(map(dtype_name, dtypes))
                    raise Unsupported(
                        f"{name} of {self.path.name} computes {known}, {label} is {dtype_name(meta.dtype)}"
                    )
            return _LibraryLaunch(self, name, strided, call.spec)

        return make

    def formula(self, name: str, operator: str | None = None) -> Callable[..., Any]:
        """What a family's `reference` has under the operator's name: `name` computes it, in float64 too.

        For that the contract has to accept float64 in Python (`generous`).
        """

        def compute(*args: Any, **options: Any) -> Any:
            del options  # they are for formulas in Python
            found = lookup(operator or name)
            mine = [value.clone() if k in found.spec.updated and value is not None else value
                    for k, value in enumerate(args)]  # fmt: skip
            _, produced = found.judge(mine, asked=True)
            outs = allocated(produced)
            _LibraryLaunch(self, name, False, found.spec)(mine, outs, None)
            results = found.spec.written(mine, outs)
            return results if len(results) > 1 else results[0]

        return compute

    @cached_property
    def _functions(self) -> ctypes.CDLL:
        if not self.path.is_file():
            raise Prevented(f"there is no library at {self.path}, expected the one that the family is built with")
        try:
            return ctypes.CDLL(str(self.path))
        except OSError as error:
            raise Prevented(f"the library {self.path} cannot be loaded: {error}") from None

    def function(self, name: str) -> Callable[[Any], int]:
        """The C function of this name."""
        try:
            found = getattr(self._functions, name)
        except AttributeError:
            raise Prevented(f"the library {self.path} has no function {name}") from None
        found.argtypes, found.restype = (ctypes.POINTER(_Value),), ctypes.c_int
        return found  # type: ignore[no-any-return]  # a ctypes function


class _LibraryLaunch:
    """A call of such a function."""

    workspace = 0

    def __init__(self, library: SharedLibrary, name: str, strided: bool, spec: OpSpec) -> None:
        self._function = library.function(name)
        self._what = f"{name} of {library.path.name}"
        self._strided = strided
        self._updated = spec.updated

    def describe(self) -> str:
        """In words."""
        return f"the function {self._what}{' on strided tensors' if self._strided else ''}"

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor | None) -> None:  # noqa: ARG002
        """Compute."""
        given = [*args, *outs]
        values = given if self._strided else [_dense(value) for value in given]
        kept: list[Any] = []
        code = self._function((_Value * len(values))(*[_value(value, kept) for value in values]))
        if code:
            raise AclgradError(f"the function {self._what} returned {code}, expected 0")
        for k in (*self._updated, *range(len(args), len(given))):
            for mine, copy in zip(_members(given[k]), _members(values[k]), strict=True):
                if mine is not copy:
                    mine.copy_(copy)


def _members(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _dense(value: Any) -> Any:
    """Contiguous tensors; everything else as it is."""
    if isinstance(value, list | tuple):
        return [_dense(item) for item in value]
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _value(value: Any, kept: list[Any]) -> _Value:
    """An argument as C has it; `kept` is what must live as long."""
    if value is None:
        return _Value()
    if isinstance(value, torch.Tensor):
        return _tensors([value], kept)
    if isinstance(value, list | tuple):
        if value and all(isinstance(flag, bool) for flag in value):
            flags = (ctypes.c_bool * len(value))(*value)
            kept.append(flags)
            return _Value(count=len(value), flags=flags)
        return _tensors(value, kept)
    return _Value(integer=int(value) if isinstance(value, int) else 0, number=float(value))


def _tensors(members: Sequence[torch.Tensor | None], kept: list[Any]) -> _Value:
    array = (_Tensor * max(len(members), 1))()
    for slot, member in zip(array, members, strict=False):
        if member is not None:
            sizes = ctypes.c_int64 * member.dim()
            slot.data, slot.dataType = member.data_ptr() or None, int(ACL_DATA_TYPES[member.dtype])
            slot.dimNum = member.dim()
            slot.dims, slot.strides = sizes(*member.shape), sizes(*member.stride())
    kept.append(array)
    return _Value(count=len(members), tensors=array)
