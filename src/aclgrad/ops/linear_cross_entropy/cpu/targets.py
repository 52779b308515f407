"""Targets of either integer type: told apart where one is read, so that no kernel is compiled for each."""

from __future__ import annotations

from aclgrad.core.meta import Meta
from aclgrad.core.spec import I32, I64
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.lanes import pointer_to

_narrow, _wide = pointer_to(I32), pointer_to(I64)


def is_wide(target: Meta) -> int:
    """What the following are told of targets: whether they have 64 bits."""
    return int(target.dtype == I64)


@jit
def target_at(target: int, wide: int, index: int) -> int:
    """The element at `index` of the targets at an address."""
    return _wide(target)[index] if wide else _narrow(target)[index]  # type: ignore[no-any-return]


@jit
def put_target(target: int, wide: int, index: int, row: int) -> None:
    """Write an element."""
    if wide:
        _wide(target)[index] = row
    else:
        _narrow(target)[index] = row
