"""Meta objects under their C names: aclTensor, aclScalar, arrays and lists.

Arrays are Python sequences with their length beside them, as in C. Creators return the handle, 0 when refused. Getters
return their values first and the status last. Destroying null succeeds; destroying a list destroys its members, those
already gone excepted.
"""

# ruff: noqa: N816  these are the C interface's own names

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.errors import InvalidArgument
from .arguments import INT64_MAX, INT64_MIN, integer, nullable_address, optional_path
from .boundary import AclRuntimeError, aclnn_call, after, code_only, instead, tolerate
from .enums import SUCCESS
from .findings import Kind
from .handles import Table
from .process import read_config
from .tensors import (
    BOOL_ARRAYS,
    FLOAT_ARRAYS,
    INT_ARRAYS,
    SCALAR_LISTS,
    SCALARS,
    TENSOR_LISTS,
    TENSORS,
    AclArray,
    AclList,
    AclTensor,
    as_bool,
    as_float32,
    as_scalar,
    describe,
    items,
)

T = TypeVar("T")
Getter = Callable[[Any], tuple[Any, int]]
ShapeGetter = Callable[[Any], tuple[tuple[int, ...], int, int]]


@aclnn_call("aclnnInit", code_only)
def aclnnInit(configPath: Any = None) -> int:
    """Initialise the operator library, which needs none; a configuration must be readable all the same."""
    try:
        read_config(optional_path("configPath", configPath))
    except AclRuntimeError as refused:
        raise InvalidArgument(f"configPath {refused}", "configPath") from None
    return SUCCESS


@aclnn_call("aclnnFinalize", code_only)
def aclnnFinalize() -> int:
    """End the operator library, which holds nothing."""
    return SUCCESS


@aclnn_call("aclCreateTensor", instead(0))
def aclCreateTensor(
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorData: Any,
) -> int:
    """A tensor over borrowed memory; strides and offset count elements, a null stride means contiguous."""
    return TENSORS.add(
        AclTensor(
            describe(
                viewDims,
                viewDimsNum,
                dataType,
                stride,
                offset,
                format,
                storageDims,
                storageDimsNum,
                tensorData,
            )
        )
    )


@aclnn_call("aclInitTensor", code_only)
def aclInitTensor(
    tensor: Any,
    viewDims: Any,
    viewDimsNum: Any,
    dataType: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storageDims: Any,
    storageDimsNum: Any,
    tensorData: Any,
) -> int:
    """Describe an existing tensor anew, with the arguments of aclCreateTensor."""
    found = TENSORS.get(tensor, "tensor")
    found.initialise(
        describe(viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum, tensorData)
    )
    return SUCCESS


@aclnn_call("aclCreateScalar", instead(0))
def aclCreateScalar(value: Any, dataType: Any) -> int:
    """A number of the given type."""
    return SCALARS.add(as_scalar(value, dataType))


def _array_creator(
    c_name: str, table: Table[AclArray[T]], convert: Callable[[str, Any], T]
) -> Callable[[Any, Any], int]:
    @aclnn_call(c_name, instead(0))
    def create(value: Any, size: Any) -> int:
        """An array with a copy of the first `size` values."""
        chosen = items("value", value, size, "size")
        return table.add(AclArray(tuple([convert(f"value[{k}]", item) for k, item in enumerate(chosen)])))

    return create


def _list_creator(c_name: str, table: Table[AclList[T]], members: Table[T]) -> Callable[[Any, Any], int]:
    @aclnn_call(c_name, instead(0))
    def create(value: Any, size: Any) -> int:
        """A list that owns the first `size` members; a member may be null."""
        handles = [nullable_address(f"value[{k}]", h) for k, h in enumerate(items("value", value, size, "size"))]
        found = [members.get(h, f"value[{k}]") if h else None for k, h in enumerate(handles)]
        for handle in handles:
            members.origins.pop(handle, None)  # from now on the list answers for it
        return table.add(AclList(tuple(handles), tuple(found)))

    return create


def _destroyer(c_name: str, table: Table[Any], name: str) -> Callable[[Any], int]:
    @aclnn_call(c_name, code_only)
    def destroy(handle: Any) -> int:
        """Destroy one object; null is none."""
        if handle is not None and not (type(handle) is int and handle == 0):
            table.pop(handle, name)
        return SUCCESS

    return destroy


def _list_destroyer(c_name: str, table: Table[AclList[T]], members: Table[T], name: str) -> Callable[[Any], int]:
    @aclnn_call(c_name, code_only)
    def destroy(handle: Any) -> int:
        """Destroy a list and those of its members that still exist; null is none."""
        if handle is not None and not (type(handle) is int and handle == 0):
            owned = table.pop(handle, name).handles
            gone = [k for k, member in enumerate(owned) if member and members.discard(member) is None]
            if gone:
                tolerate(
                    Kind.MEMBER_DESTROYED_TWICE,
                    f"{table.kind} has destroyed members {gone[:8]}, expected to destroy them itself",
                )
        return SUCCESS

    return destroy


def _getter(c_name: str, table: Table[T], name: str, value: Callable[[T], Any]) -> Getter:
    @aclnn_call(c_name, after(0))
    def get(handle: Any) -> tuple[Any, int]:
        """(value, status)."""
        return value(table.get(handle, name)), SUCCESS

    return get


def _shape_getter(c_name: str, dims: Callable[[AclTensor], tuple[int, ...]]) -> ShapeGetter:
    @aclnn_call(c_name, after((), 0))
    def get(tensor: Any) -> tuple[tuple[int, ...], int, int]:
        """(values, their number, status)."""
        values = dims(TENSORS.get(tensor, "tensor"))
        return values, len(values), SUCCESS

    return get


aclCreateIntArray = _array_creator(
    "aclCreateIntArray", INT_ARRAYS, lambda name, value: integer(name, value, INT64_MIN, INT64_MAX)
)
aclCreateFloatArray = _array_creator("aclCreateFloatArray", FLOAT_ARRAYS, as_float32)
aclCreateBoolArray = _array_creator("aclCreateBoolArray", BOOL_ARRAYS, as_bool)
aclCreateTensorList = _list_creator("aclCreateTensorList", TENSOR_LISTS, TENSORS)
aclCreateScalarList = _list_creator("aclCreateScalarList", SCALAR_LISTS, SCALARS)

aclDestroyTensor = _destroyer("aclDestroyTensor", TENSORS, "tensor")
aclDestroyScalar = _destroyer("aclDestroyScalar", SCALARS, "scalar")
aclDestroyIntArray = _destroyer("aclDestroyIntArray", INT_ARRAYS, "array")
aclDestroyFloatArray = _destroyer("aclDestroyFloatArray", FLOAT_ARRAYS, "array")
aclDestroyBoolArray = _destroyer("aclDestroyBoolArray", BOOL_ARRAYS, "array")
aclDestroyTensorList = _list_destroyer("aclDestroyTensorList", TENSOR_LISTS, TENSORS, "array")
aclDestroyScalarList = _list_destroyer("aclDestroyScalarList", SCALAR_LISTS, SCALARS, "array")

aclGetViewShape = _shape_getter("aclGetViewShape", lambda tensor: tensor.meta.shape)
aclGetStorageShape = _shape_getter("aclGetStorageShape", lambda tensor: tensor.storage_dims)
aclGetViewStrides = _shape_getter("aclGetViewStrides", lambda tensor: tensor.meta.strides)
aclGetViewOffset = _getter("aclGetViewOffset", TENSORS, "tensor", lambda tensor: tensor.offset)
aclGetFormat = _getter("aclGetFormat", TENSORS, "tensor", lambda tensor: int(tensor.format))
aclGetDataType = _getter("aclGetDataType", TENSORS, "tensor", lambda tensor: int(tensor.data_type))
aclGetRawTensorAddr = _getter("aclGetRawTensorAddr", TENSORS, "tensor", lambda tensor: tensor.data)
aclGetIntArraySize = _getter("aclGetIntArraySize", INT_ARRAYS, "array", lambda array: len(array.values))
aclGetFloatArraySize = _getter("aclGetFloatArraySize", FLOAT_ARRAYS, "array", lambda array: len(array.values))
aclGetBoolArraySize = _getter("aclGetBoolArraySize", BOOL_ARRAYS, "array", lambda array: len(array.values))
aclGetTensorListSize = _getter("aclGetTensorListSize", TENSOR_LISTS, "tensorList", lambda items: len(items.members))
aclGetScalarListSize = _getter("aclGetScalarListSize", SCALAR_LISTS, "scalarList", lambda items: len(items.members))


@aclnn_call("aclSetRawTensorAddr", code_only)
def aclSetRawTensorAddr(tensor: Any, addr: Any) -> int:
    """Point a tensor to other memory."""
    TENSORS.get(tensor, "tensor").rebind(nullable_address("addr", addr))
    return SUCCESS
