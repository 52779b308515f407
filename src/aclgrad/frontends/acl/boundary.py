"""Where Python exceptions become codes: every function of the C interface is wrapped here, and none raises.

Inside, a fault is an exception: the typed errors of `core.errors`, or `AclRuntimeError` with a runtime code of its own.
At the boundary it becomes a return code, and a message that the same thread can fetch once.

    exception                           runtime call        aclnn call
    AclRuntimeError                     its own code        361001
    NullArgument                        100000              161001
    InvalidArgument, WrongType          100000              161002
    too few or too many arguments       100000              161002
    DeviceMemoryError                   107000              361001
    MemoryError                         200000              561000
    anything else (a fault of ours)     500000              its status, or 561000
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ...core.errors import AclgradError, DeviceMemoryError, InvalidArgument, NullArgument
from .enums import AclError, AclnnStatus

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("aclgrad.acl")

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every wrapped function by its C name."""

_thread = threading.local()


class AclRuntimeError(AclgradError, RuntimeError):
    """A runtime fault with its own aclError code; an aclnn call reports it as a runtime error."""

    status = int(AclnnStatus.ACLNN_ERR_RUNTIME_ERROR)

    def __init__(self, code: AclError, message: str) -> None:
        super().__init__(message)
        self.code = code


def remember(message: str) -> None:
    """Keep `message` for the calling thread until it is fetched or a newer one replaces it."""
    _thread.message = message


def take_message() -> str | None:
    """The newest message of the calling thread, which is then forgotten."""
    message: str | None = getattr(_thread, "message", None)
    _thread.message = None
    return message


def runtime_code(error: BaseException) -> AclError:
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


def _boundary(
    c_name: str, code_of: Callable[[BaseException], AclError | AclnnStatus], refused: Callable[[int], Any]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                fault = _mismatch(error, function, args, kwargs) if type(error) is TypeError else error
                code = code_of(fault)
                if not isinstance(fault, AclgradError | MemoryError):
                    logger.error("%s failed unexpectedly", c_name, exc_info=error)
                remember(f"{c_name}: {_text(fault)} ({int(code)} {code.name})")
                answer: R = refused(int(code))
                return answer

        FUNCTIONS[c_name] = call
        return call

    return decorate


def _mismatch(
    error: TypeError, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """What `error` is the caller's fault for: a call that does not fit the signature, if it does not."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        return InvalidArgument(f"{misfit}, expected {', '.join(signature.parameters) or 'no arguments'}")
    return error


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, AclgradError) else f"{type(error).__name__}: {error}"
