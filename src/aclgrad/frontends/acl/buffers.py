"""aclDataBuffer and aclTensorDesc: what programs describe data with for models and single operators.

They are complete here as far as they need neither. Creators return 0 when refused, getters a 0 that means nothing.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidArgument, WrongType
from .arguments import INT32_MAX, INT64_MAX, UINT64_MAX, integer, member, nullable_address, shown, size_t
from .boundary import after, code_only, instead, runtime_call
from .enums import DATA_TYPE_SIZES, SUCCESS, AclDataType, AclFormat
from .findings import Kind
from .handles import Table

UNKNOWN_DIM = -1
MOST_DIMS = 128


class DataBuffer:
    """An address and how many bytes lie there; the memory is the program's."""

    __slots__ = ("address", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size


class TensorDesc:
    """A tensor without data."""

    __slots__ = ("data_type", "dims", "format", "name", "storage_dims", "storage_format")

    def __init__(self, data_type: AclDataType, dims: tuple[int, ...], layout: AclFormat) -> None:
        self.data_type, self.dims, self.format = data_type, dims, layout
        self.name = ""
        self.storage_dims: tuple[int, ...] | None = None
        self.storage_format: AclFormat | None = None

    @property
    def count(self) -> int:
        """Number of elements; 0 while a size is unknown."""
        total = 1
        for extent in self.dims:
            total *= max(extent, 0)
        return total


BUFFERS: Table[DataBuffer] = Table("aclDataBuffer", leak=lambda _: Kind.BUFFER_LEAKED)
DESCS: Table[TensorDesc] = Table("aclTensorDesc", leak=lambda _: Kind.BUFFER_LEAKED)


@runtime_call("aclCreateDataBuffer", instead(0))
def create_data_buffer(data: Any, size: Any) -> int:
    """A buffer over memory of the program's."""
    return BUFFERS.add(DataBuffer(nullable_address("data", data), size_t("size", size)))


@runtime_call("aclDestroyDataBuffer", code_only)
def destroy_data_buffer(data_buffer: Any) -> int:
    """Destroy a buffer, not its memory."""
    BUFFERS.pop(data_buffer, "dataBuffer")
    return SUCCESS


@runtime_call("aclUpdateDataBuffer", code_only)
def update_data_buffer(data_buffer: Any, data: Any, size: Any) -> int:
    """Point a buffer to other memory."""
    found = BUFFERS.get(data_buffer, "dataBuffer")
    found.address, found.size = nullable_address("data", data), size_t("size", size)
    return SUCCESS


@runtime_call("aclGetDataBufferAddr", instead(0))
def get_data_buffer_addr(data_buffer: Any) -> int:
    """Where the memory of a buffer begins."""
    return BUFFERS.get(data_buffer, "dataBuffer").address


@runtime_call("aclGetDataBufferSizeV2", instead(0))
def get_data_buffer_size_v2(data_buffer: Any) -> int:
    """The bytes of a buffer."""
    return BUFFERS.get(data_buffer, "dataBuffer").size


@runtime_call("aclGetDataBufferSize", instead(0))
def get_data_buffer_size(data_buffer: Any) -> int:
    """The bytes of a buffer, as far as 32 bits can tell."""
    return BUFFERS.get(data_buffer, "dataBuffer").size & 0xFFFFFFFF


@runtime_call("aclCreateTensorDesc", instead(0))
def create_tensor_desc(data_type: Any, dims: Any, format: Any) -> int:
    """A description of a tensor; a size of -1 is unknown yet."""
    kind, layout = member("dataType", data_type, AclDataType), member("format", format, AclFormat)
    return DESCS.add(TensorDesc(kind, _dims(dims), layout))


@runtime_call("aclDestroyTensorDesc", instead(None))
def destroy_tensor_desc(desc: Any) -> None:
    """Destroy a description."""
    DESCS.pop(desc, "desc")


@runtime_call("aclGetTensorDescType", instead(int(AclDataType.ACL_DT_UNDEFINED)))
def get_tensor_desc_type(desc: Any) -> int:
    """The element type."""
    return int(DESCS.get(desc, "desc").data_type)


@runtime_call("aclGetTensorDescFormat", instead(int(AclFormat.ACL_FORMAT_UNDEFINED)))
def get_tensor_desc_format(desc: Any) -> int:
    """The format."""
    return int(DESCS.get(desc, "desc").format)


@runtime_call("aclGetTensorDescElementCount", instead(0))
def get_tensor_desc_element_count(desc: Any) -> int:
    """The number of elements; 0 while a size is unknown."""
    return DESCS.get(desc, "desc").count


@runtime_call("aclGetTensorDescSize", instead(0))
def get_tensor_desc_size(desc: Any) -> int:
    """The bytes of all elements."""
    found = DESCS.get(desc, "desc")
    return found.count * DATA_TYPE_SIZES[found.data_type]


@runtime_call("aclGetTensorDescNumDims", instead(0))
def get_tensor_desc_num_dims(desc: Any) -> int:
    """The number of dimensions."""
    return len(DESCS.get(desc, "desc").dims)


@runtime_call("aclGetTensorDescDim", instead(UNKNOWN_DIM))
def get_tensor_desc_dim(desc: Any, index: Any) -> int:
    """The size of one dimension."""
    return _dim(desc, index)


@runtime_call("aclGetTensorDescDimV2", after(UNKNOWN_DIM))
def get_tensor_desc_dim_v2(desc: Any, index: Any) -> tuple[int, int]:
    """(the size of one dimension, ret)."""
    return _dim(desc, index), SUCCESS


@runtime_call("aclSetTensorDescName", instead(None))
def set_tensor_desc_name(desc: Any, name: Any) -> None:
    """Name what is described."""
    if not isinstance(name, str | bytes | type(None)):
        raise WrongType(f"name is {shown(name)}, expected a string", "name")
    DESCS.get(desc, "desc").name = name.decode(errors="replace") if isinstance(name, bytes) else name or ""


@runtime_call("aclGetTensorDescName", instead(""))
def get_tensor_desc_name(desc: Any) -> str:
    """The name; empty if none was given."""
    return DESCS.get(desc, "desc").name


@runtime_call("aclSetTensorFormat", code_only)
def set_tensor_format(desc: Any, format: Any) -> int:
    """Give a description another format."""
    DESCS.get(desc, "desc").format = member("format", format, AclFormat)
    return SUCCESS


@runtime_call("aclSetTensorShape", code_only)
def set_tensor_shape(desc: Any, dims: Any) -> int:
    """Give a description other sizes."""
    DESCS.get(desc, "desc").dims = _dims(dims)
    return SUCCESS


@runtime_call("aclSetTensorStorageFormat", code_only)
def set_tensor_storage_format(desc: Any, format: Any) -> int:
    """Say how the tensor lies in memory."""
    DESCS.get(desc, "desc").storage_format = member("format", format, AclFormat)
    return SUCCESS


@runtime_call("aclSetTensorStorageShape", code_only)
def set_tensor_storage_shape(desc: Any, dims: Any) -> int:
    """Say what sizes the tensor has in memory."""
    DESCS.get(desc, "desc").storage_dims = _dims(dims)
    return SUCCESS


def _dim(desc: Any, index: Any) -> int:
    dims, k = DESCS.get(desc, "desc").dims, integer("index", index, 0, UINT64_MAX)
    if k >= len(dims):
        raise InvalidArgument(f"index is {k}, expected less than {len(dims)}", "index")
    return dims[k]


def _dims(values: Any) -> tuple[int, ...]:
    try:
        chosen = [] if values is None else list(values)
    except TypeError:
        raise WrongType(f"dims is {shown(values)}, expected a sequence of sizes", "dims") from None
    if len(chosen) > min(MOST_DIMS, INT32_MAX):
        raise InvalidArgument(f"dims has {len(chosen)} sizes, expected at most {MOST_DIMS}", "dims")
    return tuple(integer(f"dims[{k}]", extent, UNKNOWN_DIM, INT64_MAX) for k, extent in enumerate(chosen))
