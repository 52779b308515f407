"""The objects behind aclTensor, aclScalar and the array and list handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from ...core.errors import InvalidArgument, NullArgument, WrongType
from ...core.meta import Meta, contiguous_strides
from . import engines
from .arguments import INT64_MAX, UINT64_MAX, integer, member, nullable_address, shown
from .blocks import DEVICE, GRANULE
from .boundary import tolerate
from .enums import DATA_TYPE_SIZES, TORCH_DTYPES, AclDataType, AclFormat
from .findings import Kind
from .handles import Table

T = TypeVar("T")

_CPU = torch.device("cpu")


class Description(NamedTuple):
    """Everything an aclTensor is created from, checked. Strides and offset count elements."""

    meta: Meta
    data_type: AclDataType
    offset: int
    storage_dims: tuple[int, ...]
    data: int


class AclTensor:
    """A tensor's metadata and the address of its data. `tensor()` is the data, as long as its memory lives.

    `meta.dtype` is the aclDataType member where torch has no such dtype.
    """

    __slots__ = ("__weakref__", "data", "data_type", "meta", "offset", "storage_dims", "view")

    def __init__(self, description: Description) -> None:
        self.initialise(description)

    def initialise(self, description: Description) -> None:
        """Take on a new description."""
        self.meta, self.data_type, self.offset, self.storage_dims, self.data = description
        self.view: torch.Tensor | None = None  # found when last asked for; None again when its memory is freed

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the view."""
        return self.meta.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the view, in elements."""
        return self.meta.strides

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype, or the aclDataType member where torch has none."""
        return self.meta.dtype

    @property
    def format(self) -> int:
        """The aclFormat number."""
        return self.meta.format if self.meta.format is not None else AclFormat.ACL_FORMAT_ND

    def tensor(self) -> torch.Tensor:
        """The torch view of the data; raises if the address is not, or no longer, enough device memory."""
        view = self.view
        return view if view is not None else self._bind()

    def rebind(self, data: int) -> None:
        """Point to other data of the same description."""
        _check_alignment(self.meta, data)
        self.data = data
        self.view = None

    def unbind(self) -> None:
        """Forget the view: its memory was freed."""
        self.view = None

    def _bind(self) -> torch.Tensor:
        meta = self.meta
        if not isinstance(meta.dtype, torch.dtype):
            raise InvalidArgument(f"{self.data_type.name} has no torch dtype, expected one that has")
        with DEVICE.lock:  # a block freed meanwhile would leave a view nobody revokes
            self.view = DEVICE.view(self.data, meta.shape, meta.strides, self.offset, meta.dtype, self)
            return self.view


class AclScalar(NamedTuple):
    """One number, rounded to its data type."""

    value: bool | int | float | complex
    data_type: AclDataType


class AclArray(Generic[T]):
    """Values copied at creation."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[T, ...]) -> None:
        self.values = values


class AclList(Generic[T]):
    """Objects owned by the list: they are destroyed with it. A null member is None."""

    __slots__ = ("handles", "members")

    def __init__(self, handles: tuple[int, ...], members: tuple[T | None, ...]) -> None:
        self.handles = handles
        self.members = members


TENSORS: Table[AclTensor] = Table("aclTensor", leak=lambda _: Kind.TENSOR_LEAKED)
SCALARS: Table[AclScalar] = Table("aclScalar", leak=lambda _: Kind.SCALAR_LEAKED)
INT_ARRAYS: Table[AclArray[int]] = Table("aclIntArray", leak=lambda _: Kind.ARRAY_LEAKED)
FLOAT_ARRAYS: Table[AclArray[float]] = Table("aclFloatArray", leak=lambda _: Kind.ARRAY_LEAKED)
BOOL_ARRAYS: Table[AclArray[bool]] = Table("aclBoolArray", leak=lambda _: Kind.ARRAY_LEAKED)
TENSOR_LISTS: Table[AclList[AclTensor]] = Table("aclTensorList", leak=lambda _: Kind.LIST_LEAKED)
SCALAR_LISTS: Table[AclList[AclScalar]] = Table("aclScalarList", leak=lambda _: Kind.LIST_LEAKED)


def describe(
    view_dims: Any,
    view_dims_num: Any,
    data_type: Any,
    stride: Any,
    offset: Any,
    format: Any,
    storage_dims: Any,
    storage_dims_num: Any,
    tensor_data: Any,
) -> Description:
    """The arguments of aclCreateTensor, checked. A null `stride` means contiguous."""
    shape = _extents("viewDims", view_dims, view_dims_num)
    kind = member("dataType", data_type, AclDataType)
    strides = contiguous_strides(shape) if stride is None else _extents("stride", stride, len(shape))
    first = integer("offset", offset, 0, INT64_MAX)
    layout = member("format", format, AclFormat)
    storage = _extents("storageDims", storage_dims, storage_dims_num)
    data = nullable_address("tensorData", tensor_data)
    dtype: Any = TORCH_DTYPES.get(kind, kind)
    meta = Meta(shape, strides, dtype, engines.current.only_device or _device_of(data), int(layout))
    _check_extent(meta, first, max(DATA_TYPE_SIZES[kind], 1))
    _check_alignment(meta, data)
    return Description(meta, kind, first, storage, data)


def items(name: str, values: Any, count: Any, count_name: str) -> Sequence[Any]:
    """The first `count` elements of a sequence, which stands for a pointer and a length."""
    number = integer(count_name, count, 0, UINT64_MAX)
    if values is None:
        if number:
            raise NullArgument(f"{name} is null, expected {number} elements", name)
        return ()
    try:
        length = len(values)
        if isinstance(values, str | bytes):
            raise TypeError
        chosen = list(values[:number])
    except (TypeError, KeyError):
        raise WrongType(f"{name} is {shown(values)}, expected a sequence", name) from None
    if length < number:
        raise InvalidArgument(f"{name} has {length} elements, expected {count_name} = {number}", name)
    return chosen


def as_bool(name: str, value: Any) -> bool:
    """A bool, also as 0 or 1."""
    return value if isinstance(value, bool) else bool(integer(name, value, 0, 1))


def as_float32(name: str, value: Any) -> float:
    """A real number, rounded to float32."""
    return float(torch.tensor(_real(name, value), dtype=torch.float32, device=_CPU).item())


def as_scalar(value: Any, data_type: Any) -> AclScalar:
    """A number that its data type can hold, rounded to it."""
    kind = member("dataType", data_type, AclDataType)
    dtype = TORCH_DTYPES.get(kind)
    if dtype is None:
        raise InvalidArgument(f"dataType is {kind.name}, expected one of numbers", "dataType")
    if dtype is torch.bool:
        return AclScalar(as_bool("value", value), kind)
    if dtype.is_complex:
        return AclScalar(complex(value) if isinstance(value, complex) else complex(_real("value", value)), kind)
    if dtype.is_floating_point:
        exact = torch.tensor(_real("value", value), dtype=torch.float64, device=_CPU)
        return AclScalar(exact.to(dtype).double().item(), kind)
    limits = torch.iinfo(dtype)
    return AclScalar(integer("value", value, limits.min, limits.max), kind)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise WrongType(f"{name} is {shown(value)}, expected a number", name)
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(f"{name} is {shown(value)}, expected a number in the range of float", name) from None


def _extents(name: str, values: Any, count: Any) -> tuple[int, ...]:
    chosen = items(name, values, count, f"{name}Num")
    for value in chosen:
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            return tuple([integer(f"{name}[{k}]", item, 0, INT64_MAX) for k, item in enumerate(chosen)])
    return tuple(chosen)


def _device_of(data: int) -> torch.device:
    """The device whose memory an address is; the first one for an address that is none."""
    block = DEVICE.find(data)
    return engines.current.torch_device(0) if block is None else block.storage.device


def _check_alignment(meta: Meta, data: int) -> None:
    if data % GRANULE and 0 not in meta.shape:
        tolerate(Kind.UNALIGNED_DATA, f"tensorData is {data:#x}, expected a multiple of {GRANULE}")


def _check_extent(meta: Meta, offset: int, itemsize: int) -> None:
    """Refuse element counts and byte positions that no 64-bit number can hold."""
    last = offset + sum(max(n - 1, 0) * stride for n, stride in zip(meta.shape, meta.strides, strict=True))
    largest = max((meta.numel * itemsize, (last + 1) * itemsize, *meta.strides))
    if largest > INT64_MAX:
        raise InvalidArgument(
            f"viewDims {list(meta.shape)[:8]} span {shown(largest)} bytes, expected at most {INT64_MAX}",
            "viewDims",
        )
