"""The C signature of every function, and what each parameter is for.

The runtime and meta functions stand in declarations.txt; an operator's pair follows from its contract.
Header files, guards and adapters are all made from these prototypes.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ...core.registry import aclnn_operators
from ...core.spec import BoolArray, Flag, Float, Int, OpSpec, Out, OutList, Param, Tensor, TensorList
from ..acl import enums

DECLARATIONS = Path(__file__).with_name("declarations.txt")

ENUM_TYPES = {
    "aclDataType": enums.AclDataType,
    "aclFormat": enums.AclFormat,
    "aclMemType": enums.MemType,
    "aclSysParamOpt": enums.SysParamOpt,
    "aclLogLevel": enums.LogLevel,
    "aclrtMemcpyKind": enums.MemcpyKind,
    "aclrtMemMallocPolicy": enums.MallocPolicy,
    "aclrtMemAttr": enums.MemAttr,
    "aclrtStreamStatus": enums.StreamStatus,
    "aclrtEventRecordedStatus": enums.EventRecordedStatus,
    "aclrtEventStatus": enums.EventStatus,
    "aclrtEventWaitStatus": enums.EventWaitStatus,
    "aclrtRunMode": enums.RunMode,
    "aclrtCallbackBlockType": enums.CallbackBlockType,
    "aclrtDeviceStatus": enums.DeviceStatus,
    "aclrtLastErrLevel": enums.LastErrLevel,
    "aclrtMemLocationType": enums.MemLocationType,
}
OPAQUE_TYPES = (
    "aclTensor",
    "aclScalar",
    "aclIntArray",
    "aclFloatArray",
    "aclBoolArray",
    "aclTensorList",
    "aclScalarList",
    "aclOpExecutor",
)
RUNTIME_HANDLES = ("aclrtStream", "aclrtContext", "aclrtEvent")
CALLBACKS = ("aclrtCallback", "aclrtHostFunc")

Element: TypeAlias = "type[Any]"  # a simple type of ctypes
ADDRESS = ctypes.c_size_t
VALUE_TYPES: dict[str, Element] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_uint8,  # whatever a program left in the byte
    "aclError": ctypes.c_int,
    "aclnnStatus": ctypes.c_int32,
    "aclFloat16": ctypes.c_uint16,
    **dict.fromkeys(ENUM_TYPES, ctypes.c_int),
    **dict.fromkeys((*RUNTIME_HANDLES, *CALLBACKS), ADDRESS),
}
"""How a C type that is no pointer lies in memory."""

COUNTS = {
    "viewDims": "viewDimsNum", "stride": "viewDimsNum", "storageDims": "storageDimsNum", "value": "size",
    "dims": "numDims",
}  # fmt: skip
"""The parameter that says how many elements an array parameter has."""

ADDRESSES = ("tensors",)
"""Parameters that would be results by their type, and whose function reads what they point to."""

NULLABLE_OUTS = ("refCount",)
"""Out-parameters whose value a program may do without."""


class Role(Enum):
    """What a parameter is for."""

    VALUE = auto()  # a number, a handle or an address, taken as it is
    TEXT = auto()  # a string that ends with a zero
    ARRAY = auto()  # elements to read
    OUT = auto()  # room for one value
    OUT_ARRAY = auto()  # room for the address of a new array; the room for its length follows


@dataclass(frozen=True)
class Parameter:
    """A parameter of a C function: `type` is written with one blank before its asterisks."""

    type: str
    name: str

    @property
    def target(self) -> str:
        """The type a pointer points to, without const; empty for what is no pointer."""
        return self.type[:-1].rstrip().removeprefix("const ").removesuffix("const").rstrip() if self.is_pointer else ""

    @property
    def is_pointer(self) -> bool:
        """True if the type is one of addresses."""
        return self.type.endswith("*")

    @property
    def element(self) -> Element:
        """How the thing pointed to lies in memory."""
        return ADDRESS if self.target.endswith("*") else VALUE_TYPES[self.target]

    @cached_property
    def role(self) -> Role:
        """Follows from the type: what is pointed to is read if it is const and written otherwise."""
        if self.type == "const char *":
            return Role.TEXT
        if (
            not self.target
            or self.name in ADDRESSES
            or (self.target not in VALUE_TYPES and not self.target.endswith("*"))
        ):
            return Role.VALUE
        if self.type.startswith("const "):
            return Role.ARRAY
        return Role.OUT_ARRAY if self.target == "int64_t *" else Role.OUT

    def __str__(self) -> str:
        return f"{self.type}{'' if self.is_pointer else ' '}{self.name}"


@dataclass(frozen=True)
class Prototype:
    """The signature of a C function, the header that declares it and the comment it has there."""

    header: str
    comment: str
    returns: str
    name: str
    params: tuple[Parameter, ...]

    def __str__(self) -> str:
        returned = Parameter(self.returns, self.name)
        return f"{returned}({', '.join(map(str, self.params)) or 'void'})"


def prototypes() -> tuple[Prototype, ...]:
    """Every function of the C interface that is served."""
    return (*_table(), *(prototype for operator in aclnn_operators() for prototype in pair(operator.spec)))


@cache
def _table() -> tuple[Prototype, ...]:
    """The functions that are no operators'."""
    sections = re.split(r"^\[(.*)\]$", DECLARATIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    pairs = zip(sections[::2], sections[1::2], strict=True)
    return tuple(prototype for header, text in pairs for prototype in _parse(header, text))


def fingerprint() -> str:
    """Short text that changes with any signature or their order."""
    text = "\n".join(map(str, prototypes()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pair(spec: OpSpec) -> tuple[Prototype, Prototype]:
    """The two phases of an operator."""
    header = f"aclnnop/{spec.header or snake(spec.aclnn)}.h"
    operands = [Parameter(_c_type(param), param.aclnn) for param in (*spec.args, *spec.outs)]
    size, executor = Parameter("uint64_t *", "workspaceSize"), Parameter("aclOpExecutor **", "executor")
    launch = (
        Parameter("void *", "workspace"),
        Parameter("uint64_t", "workspaceSize"),
        Parameter("aclOpExecutor *", "executor"),
        Parameter("aclrtStream", "stream"),
    )
    plan = f"Phase one of the {spec.summary}: the workspace it needs, and an executor for phase two."
    run = f"Phase two: enqueue the {spec.summary} on a stream. The executor is used up, unless it is repeatable."
    return (
        Prototype(header, plan, "aclnnStatus", f"{spec.aclnn}GetWorkspaceSize", (*operands, size, executor)),
        Prototype(header, run, "aclnnStatus", spec.aclnn, launch),
    )


_C_TYPES: dict[type[Param], str] = {
    TensorList: "const aclTensorList *",
    BoolArray: "const aclBoolArray *",
    Flag: "bool",
    Int: "int64_t",
    Out: "aclTensor *",
    OutList: "aclTensorList *",
}


def _c_type(param: Param) -> str:
    if isinstance(param, Float):
        return param.c_type
    if isinstance(param, Tensor) and not isinstance(param, TensorList):
        return "const aclTensor *" if param.const else "aclTensor *"
    return _C_TYPES[type(param)]


def snake(name: str) -> str:
    """A function's name in lower case, with an underscore before each capital that follows something else."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _parse(header: str, declarations: str) -> Iterator[Prototype]:
    pattern = r"/\* ([^\n]*) \*/\s*(\w[\w *]*?)(\w+)\(([^)]*)\);"
    for comment, returns, name, inside in re.findall(pattern, declarations):
        params = [] if inside == "void" else inside.split(",")
        yield Prototype(header, comment, returns.strip(), name, tuple([_parameter(text) for text in params]))


def _parameter(text: str) -> Parameter:
    kind, name = re.fullmatch(r"\s*(.*?)(\w+)\s*", text, re.DOTALL).groups()  # type: ignore[union-attr]  # our own table
    return Parameter(kind.strip(), name)
