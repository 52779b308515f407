"""acl: the runtime under pyACL's names. `from aclgrad import acl; acl.init(); acl.rt.set_device(0)`.

Out-values come first and the code last. Constants have their C names: `acl.ACL_MEMCPY_HOST_TO_DEVICE`, `acl.ACL_FLOAT`.
"""

from __future__ import annotations

from enum import IntEnum

from ..frontends.acl.buffers import (
    create_data_buffer,
    create_tensor_desc,
    destroy_data_buffer,
    destroy_tensor_desc,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    get_tensor_desc_dim,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_desc_name,
    set_tensor_format,
    set_tensor_shape,
    set_tensor_storage_format,
    set_tensor_storage_shape,
    update_data_buffer,
)
from ..frontends.acl.enums import CONSTANTS
from ..frontends.acl.findings import findings
from ..frontends.acl.process import (
    data_type_size,
    finalize,
    finalize_reference,
    float16_to_float,
    float_to_float16,
    get_recent_err_msg,
    get_soc_name,
    init,
)
from . import rt, util

__all__ = [
    "create_data_buffer",
    "create_tensor_desc",
    "data_type_size",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "finalize",
    "finalize_reference",
    "findings",
    "float16_to_float",
    "float_to_float16",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "init",
    "rt",
    "set_tensor_desc_name",
    "set_tensor_format",
    "set_tensor_shape",
    "set_tensor_storage_format",
    "set_tensor_storage_shape",
    "update_data_buffer",
    "util",
]


def __getattr__(name: str) -> IntEnum:
    try:
        return CONSTANTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *CONSTANTS])
