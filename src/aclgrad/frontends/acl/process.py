"""acl.*: life of the process-wide runtime, messages, and small facts about types."""

from __future__ import annotations

import atexit
import ctypes
import json
import math
import struct
import threading
from pathlib import Path
from typing import Any

from ...core.errors import InvalidArgument, WrongType
from ...core.profile import current_profile
from ...core.soc import current_soc
from . import boundary, dumping, faults, findings, reports
from .arguments import integer, member, optional_path, shown
from .boundary import AclRuntimeError, after, code_only, instead, logger, runtime_call, take_message
from .devices import configure_engine, synchronize_streams
from .enums import DATA_TYPE_SIZES, SUCCESS, AclDataType, AclError
from .places import Place

MAX_CONFIG_BYTES = 10 << 20
HALF_MAX = 65504.0
HALF_OVERFLOW = 65520.0  # what rounds beyond HALF_MAX

_lock = threading.Lock()
_references = 0
_init_place: Place | None = None


@runtime_call("aclInit", code_only)
def init(config_path: Any = None) -> int:
    """Initialise the process; every call counts, also one that is refused as a repetition."""
    global _references, _init_place
    path = optional_path("configPath", config_path)
    with _lock:
        if _references:
            _references += 1
            raise AclRuntimeError(
                AclError.ACL_ERROR_REPEAT_INITIALIZE,
                f"the process is initialised already ({_references} calls)",
            )
        configuration = read_config(path)
        _check_environment()
        dumping.configure(configuration)
        configure_engine()
        findings.begin()
        if findings.strict:
            faults.install()
        _init_place = findings.place() if findings.strict else None
        _references, boundary.initialised = 1, True
    return SUCCESS


@runtime_call("aclFinalize", code_only)
def finalize() -> int:
    """End the runtime whatever the number of `init` calls; pending work is finished first."""
    with _lock:
        _require_initialised()
        _end()
    return SUCCESS


@runtime_call("aclFinalizeReference", after(0))
def finalize_reference() -> tuple[int, int]:
    """Take back one `init`; the last one ends the runtime. Returns (how many are left, ret)."""
    global _references
    with _lock:
        _require_initialised()
        if _references == 1:
            _end()
        else:
            _references -= 1
        return _references, SUCCESS


@runtime_call("aclGetRecentErrMsg", instead(None))
def get_recent_err_msg() -> str | None:
    """The newest message of the calling thread, once; None if there is none."""
    return take_message()


@runtime_call("aclrtGetSocName", instead(None))
def get_soc_name() -> str | None:
    """The name of the imitated chip."""
    return current_soc()


@runtime_call("aclDataTypeSize", instead(0))
def data_type_size(data_type: Any) -> int:
    """Bytes of one element; 0 for what has no size or is no data type."""
    return DATA_TYPE_SIZES[member("data_type", data_type, AclDataType)]


@runtime_call("aclFloat16ToFloat", instead(math.nan))
def float16_to_float(value: Any) -> float:
    """The number that 16 bits mean; the exponent of Inf and NaN is read like any other."""
    bits = integer("value", value, 0, 0xFFFF)
    if bits & 0x7C00 == 0x7C00:
        magnitude = 2.0**16 * (1 + (bits & 0x3FF) / 1024)
        return -magnitude if bits & 0x8000 else magnitude
    number: float = struct.unpack("<e", bits.to_bytes(2, "little"))[0]
    return number


@runtime_call("aclFloatToFloat16", instead(0))
def float_to_float16(value: Any) -> int:
    """The 16 bits nearest to a float32; whatever is too large, Inf or NaN becomes ±65504."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"value is {shown(value)}, expected a number", "value")
    try:
        single = ctypes.c_float(value).value
    except OverflowError:
        single = math.inf if value > 0 else -math.inf
    if not abs(single) < HALF_OVERFLOW:  # NaN too
        single = math.copysign(HALF_MAX, single)
    return int.from_bytes(struct.pack("<e", single), "little")


def read_config(path: str | None) -> Any:
    """What a configuration says, None if there is none; refused is what is no readable JSON file."""
    if path is None:
        return None
    try:
        file = Path(path)
        if not file.is_file():  # a pipe or a device may never end
            raise AclRuntimeError(AclError.ACL_ERROR_INVALID_FILE, f"{path!r} is no file, expected one of JSON")
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise AclRuntimeError(
                AclError.ACL_ERROR_INVALID_FILE_SIZE, f"{path!r} is larger than {MAX_CONFIG_BYTES} bytes"
            )
        return json.loads(file.read_bytes())
    except (OSError, UnicodeEncodeError) as error:
        raise AclRuntimeError(AclError.ACL_ERROR_INVALID_FILE, f"{path!r} cannot be read ({error})") from None
    except (ValueError, RecursionError) as error:
        raise AclRuntimeError(AclError.ACL_ERROR_PARSE_FILE, f"{path!r} is no valid JSON ({error})") from None


def _require_initialised() -> None:
    if not _references:
        raise AclRuntimeError(
            AclError.ACL_ERROR_REPEAT_FINALIZE, "the process is not initialised, expected aclInit before"
        )


def _check_environment() -> None:
    unknown = findings.read_mode()
    if unknown is not None:
        raise AclRuntimeError(
            AclError.ACL_ERROR_INVALID_PARAM, f"{findings.VARIABLE} is {unknown!r}, expected 0, 1 or nothing"
        )
    try:
        current_soc()
        current_profile()
    except InvalidArgument as meaningless:
        raise AclRuntimeError(AclError.ACL_ERROR_INVALID_PARAM, str(meaningless)) from None


def _end() -> None:
    global _references
    _references, boundary.initialised = 0, False
    if findings.strict:
        findings.conclude("aclFinalize")
        faults.uninstall()
    try:
        reports.finish(lambda seconds: synchronize_streams(seconds=seconds))
    except AclRuntimeError as failure:
        logger.warning("finalised after a failure that no synchronisation has reported: %s", failure)
    dumping.configure(None)


@atexit.register
def end_of_process() -> None:
    """Report what a checked program has left behind; to be called by a door whose process outlives Python's exit."""
    if findings.strict:
        if _references:
            findings.leave_behind(findings.Leak(findings.Kind.NOT_FINALISED, _init_place))
        findings.conclude("exit")
