"""acl: the runtime under pyACL's names. `from aclgrad import acl; acl.init(); acl.rt.set_device(0)`.

Out-values come first and the code last. Constants have their C names: `acl.ACL_MEMCPY_HOST_TO_DEVICE`, `acl.ACL_FLOAT`.
"""

from __future__ import annotations

from enum import IntEnum

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
    "data_type_size",
    "finalize",
    "finalize_reference",
    "findings",
    "float16_to_float",
    "float_to_float16",
    "get_recent_err_msg",
    "get_soc_name",
    "init",
    "rt",
    "util",
]


def __getattr__(name: str) -> IntEnum:
    try:
        return CONSTANTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *CONSTANTS])
