"""The numbers of the C interface: data types, formats, copy kinds, allocation policies, codes and statuses.

Members carry their full C names, so that one lookup by name serves Python constants and C headers alike.
"""

from __future__ import annotations

from enum import IntEnum

import torch

from ...core.rules import PRIVATE_FORMATS as _PRIVATE_FORMAT_NUMBERS
from .codes import AclError as AclError
from .codes import AclnnStatus as AclnnStatus

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
    ACL_STREAM_STATUS_RESERVED = 0xFFFF


class EventRecordedStatus(IntEnum):
    """aclrtEventRecordedStatus, as `query_event_status` reports it."""

    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1


class EventStatus(IntEnum):
    """aclrtEventStatus, as `query_event` reports it."""

    ACL_EVENT_STATUS_COMPLETE = 0
    ACL_EVENT_STATUS_NOT_READY = 1
    ACL_EVENT_STATUS_RESERVED = 2


class EventWaitStatus(IntEnum):
    """aclrtEventWaitStatus, as `query_event_wait_status` reports it."""

    ACL_EVENT_WAIT_STATUS_COMPLETE = 0
    ACL_EVENT_WAIT_STATUS_NOT_READY = 1
    ACL_EVENT_WAIT_STATUS_RESERVED = 0xFFFF


class RunMode(IntEnum):
    """aclrtRunMode: where a program runs that uses a device; here it is always the host."""

    ACL_DEVICE = 0
    ACL_HOST = 1


class CallbackBlockType(IntEnum):
    """aclrtCallbackBlockType: whether a stream waits for its callback."""

    ACL_CALLBACK_NO_BLOCK = 0
    ACL_CALLBACK_BLOCK = 1


class SysParamOpt(IntEnum):
    """aclSysParamOpt: what can be asked of all operators. They are deterministic, asked or not."""

    ACL_OPT_DETERMINISTIC = 0
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1
    ACL_OPT_STRONG_CONSISTENCY = 2
    ACL_OPT_ENABLE_KERNEL_EARLY_START = 3


class MemLocationType(IntEnum):
    """aclrtMemLocationType: whose memory an address is."""

    ACL_MEM_LOCATION_TYPE_HOST = 0
    ACL_MEM_LOCATION_TYPE_DEVICE = 1
    ACL_MEM_LOCATION_TYPE_UNREGISTERED = 2
    ACL_MEM_LOCATION_TYPE_MANAGED = 3
    ACL_MEM_LOCATION_TYPE_HOST_NUMA = 4


class MemType(IntEnum):
    """aclMemType: where a tensor description places its data."""

    ACL_MEMTYPE_DEVICE = 0
    ACL_MEMTYPE_HOST = 1
    ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT = 2


class DeviceStatus(IntEnum):
    """aclrtDeviceStatus, as `query_device_status` reports it."""

    ACL_RT_DEVICE_STATUS_NORMAL = 0
    ACL_RT_DEVICE_STATUS_ABNORMAL = 1
    ACL_RT_DEVICE_STATUS_END = 0xFFFF


class LastErrLevel(IntEnum):
    """aclrtLastErrLevel: whose newest error code is asked for."""

    ACL_RT_THREAD_LEVEL = 0


class LogLevel(IntEnum):
    """aclLogLevel, of `app_log`."""

    ACL_DEBUG = 0
    ACL_INFO = 1
    ACL_WARNING = 2
    ACL_ERROR = 3


class StreamFlag(IntEnum):
    """Bits of `create_stream_with_config`; they are hints, and remembered."""

    ACL_STREAM_FAST_LAUNCH = 0x1
    ACL_STREAM_FAST_SYNC = 0x2
    ACL_STREAM_PERSISTENT = 0x4
    ACL_STREAM_HUGE = 0x8
    ACL_STREAM_CPU_SCHEDULE = 0x10
    ACL_STREAM_DEVICE_USE_ONLY = 0x20


class FailureMode(IntEnum):
    """What a stream does after a task has failed (`set_stream_failure_mode`)."""

    ACL_CONTINUE_ON_FAILURE = 0
    ACL_STOP_ON_FAILURE = 1


class EventFlag(IntEnum):
    """Bits of `create_event_with_flag`; every event here synchronises and keeps time, whatever its bits."""

    ACL_EVENT_SYNC = 0x1
    ACL_EVENT_CAPTURE_STREAM_PROGRESS = 0x2
    ACL_EVENT_TIME_LINE = 0x8
    ACL_EVENT_DEVICE_USE_ONLY = 0x10
    ACL_EVENT_EXTERNAL = 0x20
    ACL_EVENT_IPC = 0x40


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
    AclDataType, AclFormat, MemcpyKind, MallocPolicy, MemAttr, StreamStatus, EventRecordedStatus, EventStatus,
    EventWaitStatus, RunMode, CallbackBlockType, SysParamOpt, MemLocationType, MemType, DeviceStatus, LastErrLevel,
    LogLevel, StreamFlag, FailureMode, EventFlag, AclError, AclnnStatus,
)  # fmt: skip
CONSTANTS: dict[str, IntEnum] = {name: m for enum in ENUMERATIONS for name, m in enum.__members__.items()}
