"""Every kind of finding of a checked run, by name. `docs/findings` has a page for each."""

from __future__ import annotations

from enum import Enum

from .enums import AclError, AclnnStatus

_PARAM, _INVALID = AclError.ACL_ERROR_RT_PARAM_INVALID, AclnnStatus.ACLNN_ERR_PARAM_INVALID


class Group(Enum):
    """What becomes of a finding: a wrong call is refused, a doubtful one goes on, a leak is found at the end."""

    MISTAKE = "mistake"
    REMARK = "remark"
    LEAK = "leak"


_MISTAKE, _REMARK, _LEAK = Group


class Kind(Enum):
    """A kind of finding: (name, meaning, group, code of the refused call)."""

    READ_PAST_END = "read-past-end", "a copy reads past the end of a device block", _MISTAKE, _PARAM
    COPY_RACE = (
        "copy-race",
        "a synchronous copy or fill touches memory of work that was not synchronised",
        _MISTAKE,
        _PARAM,
    )
    STREAM_RACE = (
        "stream-race",
        "work touches memory of other work on another stream, with no event or synchronisation between them",
        _MISTAKE,
        _PARAM,
    )
    FREED_IN_USE = (
        "freed-in-use",
        "memory is freed while work that uses it was not synchronised",
        _MISTAKE,
        AclError.ACL_ERROR_RT_MEMORY_FREE,
    )
    STREAM_DESTROYED_BUSY = (
        "stream-destroyed-busy",
        "a stream is destroyed with work that was not synchronised",
        _MISTAKE,
        _PARAM,
    )
    EVENT_NEVER_RECORDED = "event-never-recorded", "a stream waits for an event without a record", _MISTAKE, _PARAM
    DESTROYED_TOO_EARLY = (
        "destroyed-too-early",
        "a tensor or list is destroyed between the phases: on a device phase two uses it after it was freed",
        _MISTAKE,
        _INVALID,
    )
    MEMBER_DESTROYED_TWICE = (
        "member-destroyed-twice",
        "a list is destroyed that owns a member already destroyed: the device library frees it twice",
        _MISTAKE,
        _INVALID,
    )
    UNALIGNED_DATA = "unaligned-data", "a tensor's data address is no multiple of 32 bytes", _MISTAKE, _INVALID
    HOST_ACCESS = (
        "host-access",
        "the program itself reads or writes device memory, through a plain pointer",
        _MISTAKE,
        AclError.ACL_ERROR_RT_INVALID_MEMORY_TYPE,
    )
    NOT_INITIALISED = (
        "not-initialised",
        "an aclrt function is called before aclInit or after aclFinalize",
        _MISTAKE,
        AclError.ACL_ERROR_UNINITIALIZE,
    )
    NO_CURRENT_DEVICE = (
        "no-current-device",
        "a call needs a device, and its thread has made none current",
        _MISTAKE,
        AclError.ACL_ERROR_RT_CONTEXT_NULL,
    )
    WRONG_CONTEXT = (
        "wrong-context",
        "work is given to a stream of another context than the thread's current one",
        _MISTAKE,
        AclError.ACL_ERROR_RT_STREAM_CONTEXT,
    )
    UNSUPPORTED_CALL = "unsupported-call", "a function of CANN is called that aclgrad does not serve", _MISTAKE, None
    FAILED_CALL = "failed-call", "a call returned an error code for another reason", _MISTAKE, None

    UNINITIALISED_READ = "uninitialised-read", "device memory is read that nothing has written to", _REMARK, None
    WRONG_KIND = "wrong-kind", "the kind of a copy does not fit its addresses", _REMARK, None
    DOUBTFUL_ARGUMENT = "doubtful-argument", "an argument is legal and probably not what was meant", _REMARK, None

    DEVICE_MEMORY_LEAKED = "device-memory-leaked", "memory of aclrtMalloc was never freed", _LEAK, None
    HOST_MEMORY_LEAKED = "host-memory-leaked", "memory of aclrtMallocHost was never freed", _LEAK, None
    TENSOR_LEAKED = "tensor-leaked", "an aclTensor was neither destroyed nor given to a list", _LEAK, None
    SCALAR_LEAKED = "scalar-leaked", "an aclScalar was neither destroyed nor given to a list", _LEAK, None
    ARRAY_LEAKED = "array-leaked", "an aclIntArray, aclFloatArray or aclBoolArray was never destroyed", _LEAK, None
    LIST_LEAKED = "list-leaked", "an aclTensorList or aclScalarList was never destroyed", _LEAK, None
    BUFFER_LEAKED = "buffer-leaked", "an aclDataBuffer or aclTensorDesc was never destroyed", _LEAK, None
    STREAM_LEAKED = "stream-leaked", "a stream was never destroyed", _LEAK, None
    EVENT_LEAKED = "event-leaked", "an event was never destroyed", _LEAK, None
    CONTEXT_LEAKED = "context-leaked", "a context of aclrtCreateContext was never destroyed", _LEAK, None
    DEVICE_NOT_RESET = "device-not-reset", "aclrtSetDevice was not taken back by aclrtResetDevice", _LEAK, None
    EXECUTOR_NEVER_RUN = "executor-never-run", "phase one was not followed by phase two", _LEAK, None
    EXECUTOR_LEAKED = "executor-leaked", "a repeatable executor was never destroyed", _LEAK, None
    NEVER_SYNCHRONISED = "never-synchronised", "work was submitted and nothing has waited for it", _LEAK, None
    NOT_FINALISED = "not-finalised", "the process ends without aclFinalize", _LEAK, None

    def __init__(self, title: str, meaning: str, group: Group, code: AclError | AclnnStatus | None) -> None:
        self.title = title
        self.meaning = meaning
        self.group = group
        self.code = code

    @property
    def is_mistake(self) -> bool:
        """True for a wrong or doubtful call, False for something left behind."""
        return self.group is not Group.LEAK
