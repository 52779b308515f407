"""The numbers of the C interface: data types, formats, copy kinds, allocation policies, codes and statuses.

Members carry their full C names, so that one lookup by name serves Python constants and C headers alike.
"""

from __future__ import annotations

from enum import IntEnum

import torch

from ...core.rules import PRIVATE_FORMATS as _PRIVATE_FORMAT_NUMBERS

SUCCESS = 0
"""What every function of the interface returns when all went well, as a plain number."""


class AclDataType(IntEnum):
    """aclDataType: the element type of a tensor or scalar."""

    ACL_DT_UNDEFINED = -1
    ACL_FLOAT = 0
    ACL_FLOAT16 = 1
    ACL_INT8 = 2
    ACL_INT32 = 3
    ACL_UINT8 = 4
    ACL_INT16 = 6
    ACL_UINT16 = 7
    ACL_UINT32 = 8
    ACL_INT64 = 9
    ACL_UINT64 = 10
    ACL_DOUBLE = 11
    ACL_BOOL = 12
    ACL_STRING = 13
    ACL_COMPLEX64 = 16
    ACL_COMPLEX128 = 17
    ACL_BF16 = 27
    ACL_INT4 = 29
    ACL_UINT1 = 30
    ACL_COMPLEX32 = 33
    ACL_HIFLOAT8 = 34
    ACL_FLOAT8_E5M2 = 35
    ACL_FLOAT8_E4M3FN = 36
    ACL_FLOAT8_E8M0 = 37
    ACL_FLOAT6_E3M2 = 38
    ACL_FLOAT6_E2M3 = 39
    ACL_FLOAT4_E2M1 = 40
    ACL_FLOAT4_E1M2 = 41


class AclFormat(IntEnum):
    """aclFormat: how the dimensions of a tensor are meant and stored."""

    ACL_FORMAT_UNDEFINED = -1
    ACL_FORMAT_NCHW = 0
    ACL_FORMAT_NHWC = 1
    ACL_FORMAT_ND = 2
    ACL_FORMAT_NC1HWC0 = 3
    ACL_FORMAT_FRACTAL_Z = 4
    ACL_FORMAT_NC1HWC0_C04 = 12
    ACL_FORMAT_HWCN = 16
    ACL_FORMAT_NDHWC = 27
    ACL_FORMAT_FRACTAL_NZ = 29
    ACL_FORMAT_NCDHW = 30
    ACL_FORMAT_NDC1HWC0 = 32
    ACL_FRACTAL_Z_3D = 33  # the C header's spelling
    ACL_FORMAT_FRACTAL_Z_3D = 33
    ACL_FORMAT_NC = 35
    ACL_FORMAT_NCL = 47
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54


class MemcpyKind(IntEnum):
    """aclrtMemcpyKind: from where to where a copy goes."""

    ACL_MEMCPY_HOST_TO_HOST = 0
    ACL_MEMCPY_HOST_TO_DEVICE = 1
    ACL_MEMCPY_DEVICE_TO_HOST = 2
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3
    ACL_MEMCPY_DEFAULT = 4
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7


class MallocPolicy(IntEnum):
    """aclrtMemMallocPolicy: a page policy in the low byte, or-ed with type and access bits."""

    ACL_MEM_MALLOC_HUGE_FIRST = 0
    ACL_MEM_MALLOC_HUGE_ONLY = 1
    ACL_MEM_MALLOC_NORMAL_ONLY = 2
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000


class MemAttr(IntEnum):
    """aclrtMemAttr: which memory a query of free and total bytes means; here they are all the same."""

    ACL_DDR_MEM = 0
    ACL_HBM_MEM = 1
    ACL_DDR_MEM_HUGE = 2
    ACL_DDR_MEM_NORMAL = 3
    ACL_HBM_MEM_HUGE = 4
    ACL_HBM_MEM_NORMAL = 5
    ACL_DDR_MEM_P2P_HUGE = 6
    ACL_DDR_MEM_P2P_NORMAL = 7
    ACL_HBM_MEM_P2P_HUGE = 8
    ACL_HBM_MEM_P2P_NORMAL = 9
    ACL_HBM_MEM_HUGE1G = 10
    ACL_HBM_MEM_P2P_HUGE1G = 11
    ACL_MEM_NORMAL = 12
    ACL_MEM_HUGE = 13
    ACL_MEM_HUGE1G = 14
    ACL_MEM_P2P_NORMAL = 15
    ACL_MEM_P2P_HUGE = 16
    ACL_MEM_P2P_HUGE1G = 17


class StreamStatus(IntEnum):
    """aclrtStreamStatus, as `stream_query` reports it."""

    ACL_STREAM_STATUS_COMPLETE = 0
    ACL_STREAM_STATUS_NOT_READY = 1


class EventRecordedStatus(IntEnum):
    """aclrtEventRecordedStatus, as `query_event_status` reports it."""

    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1


class EventFlag(IntEnum):
    """Bits of `create_event_with_flag`; every event here synchronises and keeps time, whatever its bits."""

    ACL_EVENT_SYNC = 0x1
    ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x2
    ACL_EVENT_TIME_LINE = 0x8


class AclError(IntEnum):
    """aclError: what a runtime call returns."""

    ACL_SUCCESS = 0
    ACL_ERROR_NONE = 0
    ACL_ERROR_INVALID_PARAM = 100000
    ACL_ERROR_UNINITIALIZE = 100001
    ACL_ERROR_REPEAT_INITIALIZE = 100002
    ACL_ERROR_INVALID_FILE = 100003
    ACL_ERROR_WRITE_FILE = 100004
    ACL_ERROR_INVALID_FILE_SIZE = 100005
    ACL_ERROR_PARSE_FILE = 100006
    ACL_ERROR_OP_NOT_FOUND = 100024
    ACL_ERROR_UNSUPPORTED_DATA_TYPE = 100026
    ACL_ERROR_FORMAT_NOT_MATCH = 100027
    ACL_ERROR_REPEAT_FINALIZE = 100037
    ACL_ERROR_COMPILING_STUB_MODE = 100039
    ACL_ERROR_RT_PARAM_INVALID = 107000
    ACL_ERROR_RT_INVALID_DEVICEID = 107001
    ACL_ERROR_RT_CONTEXT_NULL = 107002
    ACL_ERROR_RT_STREAM_CONTEXT = 107003
    ACL_ERROR_RT_ADDR_UNALIGNED = 107008
    ACL_ERROR_RT_INVALID_MEMORY_TYPE = 107016
    ACL_ERROR_RT_INVALID_HANDLE = 107017
    ACL_ERROR_RT_INVALID_MALLOC_TYPE = 107018
    ACL_ERROR_RT_WAIT_TIMEOUT = 107019
    ACL_ERROR_BAD_ALLOC = 200000
    ACL_ERROR_API_NOT_SUPPORT = 200001
    ACL_ERROR_INVALID_DEVICE = 200002
    ACL_ERROR_MEMORY_ADDRESS_UNALIGNED = 200003
    ACL_ERROR_RESOURCE_NOT_MATCH = 200004
    ACL_ERROR_INVALID_RESOURCE_HANDLE = 200005
    ACL_ERROR_FEATURE_UNSUPPORTED = 200006
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000
    ACL_ERROR_RT_MEMORY_ALLOCATION = 207001
    ACL_ERROR_RT_MEMORY_FREE = 207002
    ACL_ERROR_RT_NO_DEVICE = 207004
    ACL_ERROR_RT_RESOURCE_ALLOC_FAIL = 207005
    ACL_ERROR_STORAGE_OVER_LIMIT = 300000
    ACL_ERROR_INTERNAL_ERROR = 500000
    ACL_ERROR_FAILURE = 500001
    ACL_ERROR_GE_FAILURE = 500002
    ACL_ERROR_RT_FAILURE = 500003
    ACL_ERROR_DRV_FAILURE = 500004
    ACL_ERROR_PROFILING_FAILURE = 500005
    ACL_ERROR_RT_INTERNAL_ERROR = 507000
    ACL_ERROR_RT_CONTEXT_RELEASE_ERROR = 507007
    ACL_ERROR_RT_AICORE_EXCEPTION = 507015
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT = 507046


class AclnnStatus(IntEnum):
    """aclnnStatus: what operator and meta-object calls return."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER = 561000
    ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001
    ACLNN_ERR_INNER_TILING_ERROR = 561002
    ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
    ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101
    ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102
    ACLNN_ERR_INNER_NULLPTR = 561103
    ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = 561104
    ACLNN_ERR_INNER_KEY_CONFLICT = 561105
    ACLNN_ERR_INNER_INVALID_IMPL_MODE = 561106
    ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107
    ACLNN_ERR_INNER_LOAD_JSON_FAILED = 561108
    ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND = 561109
    ACLNN_ERR_INNER_JSON_FORMAT_INVALID = 561110
    ACLNN_ERR_INNER_JSON_DTYPE_INVALID = 561111
    ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112
    ACLNN_ERR_INNER_OP_FILE_INVALID = 561113
    ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND = 561114
    ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH = 561115
    ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE = 561116
    ACLNN_ERR_INNER_INPUT_JSON_IS_NULL = 561117
    ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID = 561118
    ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID = 561119


PRIVATE_FORMATS = frozenset(AclFormat(number) for number in _PRIVATE_FORMAT_NUMBERS)

TORCH_DTYPES: dict[AclDataType, torch.dtype] = {
    AclDataType.ACL_FLOAT: torch.float32,
    AclDataType.ACL_FLOAT16: torch.float16,
    AclDataType.ACL_INT8: torch.int8,
    AclDataType.ACL_INT32: torch.int32,
    AclDataType.ACL_UINT8: torch.uint8,
    AclDataType.ACL_INT16: torch.int16,
    AclDataType.ACL_UINT16: torch.uint16,
    AclDataType.ACL_UINT32: torch.uint32,
    AclDataType.ACL_INT64: torch.int64,
    AclDataType.ACL_UINT64: torch.uint64,
    AclDataType.ACL_DOUBLE: torch.float64,
    AclDataType.ACL_BOOL: torch.bool,
    AclDataType.ACL_COMPLEX64: torch.complex64,
    AclDataType.ACL_COMPLEX128: torch.complex128,
    AclDataType.ACL_BF16: torch.bfloat16,
    AclDataType.ACL_COMPLEX32: torch.complex32,
    AclDataType.ACL_FLOAT8_E5M2: torch.float8_e5m2,
    AclDataType.ACL_FLOAT8_E4M3FN: torch.float8_e4m3fn,
    AclDataType.ACL_FLOAT8_E8M0: torch.float8_e8m0fnu,
}
ACL_DATA_TYPES: dict[torch.dtype, AclDataType] = {dtype: member for member, dtype in TORCH_DTYPES.items()}

# The vendor gives the sub-byte floats the size of its default branch, 8.
_SIZES_WITHOUT_TORCH = {
    AclDataType.ACL_DT_UNDEFINED: 0,
    AclDataType.ACL_STRING: 0,
    AclDataType.ACL_INT4: 1,
    AclDataType.ACL_UINT1: 1,
    AclDataType.ACL_HIFLOAT8: 1,
}
DATA_TYPE_SIZES: dict[AclDataType, int] = {
    member: TORCH_DTYPES[member].itemsize if member in TORCH_DTYPES else _SIZES_WITHOUT_TORCH.get(member, 8)
    for member in AclDataType
}

ENUMERATIONS: tuple[type[IntEnum], ...] = (
    AclDataType,
    AclFormat,
    MemcpyKind,
    MallocPolicy,
    MemAttr,
    StreamStatus,
    EventRecordedStatus,
    EventFlag,
    AclError,
    AclnnStatus,
)
CONSTANTS: dict[str, IntEnum] = {name: m for enum in ENUMERATIONS for name, m in enum.__members__.items()}
