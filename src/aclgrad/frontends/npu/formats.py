"""torch_npu's private formats: a tensor remembers which it was given, and lies in memory as before."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from torch import Tensor

from ...core.errors import InvalidArgument, WrongType
from ..acl.enums import AclFormat
from . import memory

__all__ = ["Format", "get_npu_format", "npu_format_cast", "npu_format_cast_"]

Format = IntEnum(  # type: ignore[misc]
    "Format", {member.name.removeprefix("ACL_FORMAT_"): member.value for member in AclFormat}
)
"""The formats by torch_npu's names."""

_BASE = {4: AclFormat.ACL_FORMAT_NCHW, 5: AclFormat.ACL_FORMAT_NCDHW}
"""The format of a tensor that was never cast, by its rank; others have ND."""


def npu_format_cast(self: Tensor, acl_format: int) -> Tensor:
    """A copy of the tensor with a format recorded; its elements lie in memory as before.

    Shapes: any. The tensor itself if it has the format already. On a device the elements move, so what looks at memory
    by its address finds something else there.
    """
    number = _number(acl_format)
    if get_npu_format(self) == number:
        return self
    return npu_format_cast_(self.clone(), number)


def npu_format_cast_(self: Tensor, acl_format: int | Tensor) -> Tensor:
    """Record a format for the tensor's memory: a number, or that of another tensor."""
    number = get_npu_format(acl_format) if isinstance(acl_format, Tensor) else _number(acl_format)
    _require_device(self)
    self.untyped_storage()._aclgrad_format = number  # type: ignore[attr-defined]
    return self


def get_npu_format(self: Tensor) -> int:
    """The number of the format recorded for the tensor's memory, else of what fits its rank."""
    _require_device(self)
    base = _BASE.get(self.dim(), AclFormat.ACL_FORMAT_ND)
    return int(getattr(self.untyped_storage(), "_aclgrad_format", base))


def _number(acl_format: Any) -> int:
    if isinstance(acl_format, bool) or not isinstance(acl_format, int):
        raise WrongType(f"acl_format is {type(acl_format).__name__}, expected a number of aclFormat", "acl_format")
    if acl_format not in {int(member) for member in AclFormat}:
        raise InvalidArgument(f"acl_format is {acl_format}, expected a number of aclFormat", "acl_format")
    return int(acl_format)


def _require_device(tensor: Tensor) -> None:
    if not memory.is_on_device(tensor):
        found = f"on {tensor.device}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise RuntimeError(f"self is {found}, expected a tensor of the device npu")
