"""Where Python exceptions become codes: every function of the C interface is wrapped here, and none raises.

Inside, a fault is an exception: the typed errors of `core.errors`, or `AclRuntimeError` with a runtime code of its own.
At the boundary it becomes a return code, and a message that the same thread can fetch once.

    exception                           runtime call        aclnn call
    AclRuntimeError                     its own code        361001
    NullArgument                        100000              161001
    InvalidArgument, WrongType          100000              161002
    too few or too many arguments       raises TypeError    161002
    DeviceMemoryError                   107000              361001
    MemoryError                         200000              561000
    anything else (a fault of ours)     500000              its status, or 561000

A mistake that this runtime can live with goes through `tolerate`; ACLGRAD_STRICT=1 makes it a fault like the others.
What is legal and probably not meant goes through `remark`, and never becomes a fault.

Messages speak C, whatever door they come through: aclrtSetDevice and devPtr, as aclGetRecentErrMsg does on a device.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ...core.errors import AclgradError, DeviceMemoryError, InvalidArgument, NullArgument
from . import arena, findings
from .enums import AclError, AclnnStatus

P = ParamSpec("P")
R = TypeVar("R")
CodeOf = Callable[[BaseException], "AclError | AclnnStatus"]

logger = logging.getLogger("aclgrad.acl")

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every wrapped function by its C name."""

WITHOUT_INIT = frozenset({"aclrtGetSocName", "aclrtGetDeviceCount"})
"""Runtime functions that ask for facts and need no aclInit."""
_ANSWERS = frozenset(
    {
        AclError.ACL_ERROR_REPEAT_INITIALIZE,
        AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
        AclError.ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
        AclError.ACL_ERROR_RT_REPORT_TIMEOUT,
    }
)
"""Codes that a right program may meet."""
_POLLS = ("aclrtProcessReport", AclError.ACL_ERROR_RT_THREAD_SUBSCRIBE)
"""A thread for callbacks that is started before its subscription asks until there is one."""

initialised = False
"""True between aclInit and aclFinalize."""

_warned: set[findings.Kind] = set()
_thread = threading.local()


class AclRuntimeError(AclgradError, RuntimeError):
    """A runtime fault with its own aclError code; an aclnn call reports it as a runtime error."""

    status = int(AclnnStatus.ACLNN_ERR_RUNTIME_ERROR)

    def __init__(self, code: AclError | AclnnStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


class Mistake(AclRuntimeError):
    """A mistake with a kind of its own, which decides the code. Tolerated ones are raised in a checked run only."""

    def __init__(self, kind: findings.Kind, message: str) -> None:
        code = kind.code
        super().__init__(code if isinstance(code, AclError) else AclError.ACL_ERROR_INVALID_PARAM, message)
        if isinstance(code, AclnnStatus):
            self.status = int(code)
        self.kind = kind


def tolerate(kind: findings.Kind, message: str) -> None:
    """Let a mistake pass, with one warning for each kind; ACLGRAD_STRICT=1 raises it instead."""
    if findings.strict:
        raise Mistake(kind, message)
    if kind not in _warned:
        _warned.add(kind)
        logger.warning(
            "%s (%s). %s=1 makes this an error; the warning is given once.", message, kind.title, findings.VARIABLE
        )


def remark(kind: findings.Kind, message: str) -> None:
    """Say what is legal and doubtful: once for each kind in the log, each time as a finding of a checked run."""
    if findings.strict:
        findings.note(kind, message)
    elif kind not in _warned:
        _warned.add(kind)
        logger.warning("%s (said once)", message)


def remember(message: str) -> None:
    """Keep `message` for the calling thread until it is fetched or a newer one replaces it."""
    _thread.message = message


def take_message() -> str | None:
    """The newest message of the calling thread, which is then forgotten."""
    message: str | None = getattr(_thread, "message", None)
    _thread.message = None
    return message


def take_code(*, keep: bool) -> int:
    """The newest code of a refused runtime call of the calling thread, 0 if there is none."""
    code: int = getattr(_thread, "code", 0)
    if not keep:
        _thread.code = 0
    return code


def runtime_code(error: BaseException) -> AclError | AclnnStatus:
    """The aclError of a fault."""
    if isinstance(error, AclRuntimeError):
        return error.code
    if isinstance(error, NullArgument | InvalidArgument):
        return AclError.ACL_ERROR_INVALID_PARAM
    if isinstance(error, DeviceMemoryError):
        return AclError.ACL_ERROR_RT_PARAM_INVALID
    if isinstance(error, MemoryError):
        return AclError.ACL_ERROR_BAD_ALLOC
    return AclError.ACL_ERROR_INTERNAL_ERROR


def aclnn_status(error: BaseException) -> AclnnStatus:
    """The aclnnStatus of a fault."""
    return AclnnStatus(error.status) if isinstance(error, AclgradError) else AclnnStatus.ACLNN_ERR_INNER


def code_only(code: int) -> int:
    """What a function without out-values returns when refused."""
    return code


def after(*values: object) -> Callable[[int], Any]:
    """What a function with out-values returns when refused: these in their place, then the code."""
    return lambda code: (*values, code)


def instead(value: object) -> Callable[[int], Any]:
    """What a function without a code returns when refused."""
    return lambda _: value


def runtime_call(c_name: str, refused: Callable[[int], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a function of the runtime; `refused(code)` is what it returns for a fault."""
    return _boundary(c_name, runtime_code, refused)


def aclnn_call(c_name: str, refused: Callable[[int], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Wrap a function whose faults are aclnn statuses; `refused(status)` is what it returns for one."""
    return _boundary(c_name, aclnn_status, refused)


def refusal(c_name: str, fault: BaseException, code_of: CodeOf) -> int:
    """The code of a refused call; its message is left for the calling thread."""
    code = code_of(fault)
    if not isinstance(fault, AclgradError | MemoryError):
        logger.error("%s failed unexpectedly", c_name, exc_info=fault)
    codes = [code] if not isinstance(fault, AclRuntimeError) or fault.code is code else [fault.code, code]
    message = f"{c_name}: {_text(fault)} ({', '.join([f'{int(each)} {each.name}' for each in codes])})"
    remember(message)
    if code_of is runtime_code:
        _thread.code = int(code)
    if findings.strict and code not in _ANSWERS and (c_name, code) != _POLLS:
        findings.note(fault.kind if isinstance(fault, Mistake) else findings.Kind.FAILED_CALL, message)
    return int(code)


def _boundary(
    c_name: str, code_of: CodeOf, refused: Callable[[int], Any]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    needs_init = c_name.startswith("aclrt") and c_name not in WITHOUT_INIT

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                if arena.opened:
                    arena.close_pages()
                if needs_init and not initialised:
                    tolerate(findings.Kind.NOT_INITIALISED, "the process is not initialised, expected aclInit before")
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  # whatever it is, it becomes a code
                fault: BaseException = error
                if type(error) is TypeError:
                    misfit = _misfit(function, args, kwargs)
                    if misfit is not None and code_of is runtime_code:
                        raise TypeError(f"{c_name}: {misfit}") from None
                    fault = InvalidArgument(misfit) if misfit is not None else error
                answer: R = refused(refusal(c_name, fault, code_of))
                return answer

        FUNCTIONS[c_name] = call
        return call

    return decorate


def _misfit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """How a call does not fit the signature; None if it does."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        return f"{misfit}, expected {', '.join(signature.parameters) or 'no arguments'}"
    return None


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, AclgradError) else f"{type(error).__name__}: {error}"
