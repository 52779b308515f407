"""Copies and fills: judged when they are asked for, carried out at once or later on a stream.

A device side must lie in a live device block, a host side must not. Writes never leave a block. A read past the end of
a device block copies what exists and gives zeros for the rest, with one warning; `ACLGRAD_STRICT=1` refuses it.
"""

from __future__ import annotations

from typing import Any

from . import engines, findings, ordering, raw
from .arguments import address, integer, nullable_address, size_t
from .blocks import DEVICE, HOST, Block, Heap
from .boundary import AclRuntimeError, tolerate
from .enums import AclError, MemcpyKind
from .findings import Kind
from .ordering import Touch

BYTE_BITS = 0xFF

# (destination is device memory, source is device memory); ACL_MEMCPY_DEFAULT finds out
_SIDES: dict[int, tuple[bool, bool]] = {
    MemcpyKind.ACL_MEMCPY_HOST_TO_HOST: (False, False),
    MemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE: (True, False),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST: (False, True),
    MemcpyKind.ACL_MEMCPY_DEVICE_TO_DEVICE: (True, True),
    MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: (True, False),
}
_LAST_KIND = MemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE


class Copy:
    """`count` bytes from `src` to `dst`, the last `missing` of them zeros. It keeps the blocks it touches alive."""

    __slots__ = ("blocks", "count", "dst", "missing", "src")
    what = "the copy"

    def __init__(self, dst: int, src: int, count: int, missing: int, blocks: tuple[Block | None, Block | None]) -> None:
        self.dst, self.src, self.count, self.missing, self.blocks = dst, src, count, missing, blocks

    def verify(self) -> None:
        """Refuse host memory of unknown origin that cannot be touched."""
        into, out_of = self.blocks
        if into is None and not raw.accessible(self.dst, self.count, write=True):
            raise _untouchable("dst", self.dst, self.count, "writable")
        if out_of is None and not raw.accessible(self.src, self.count, write=False):
            raise _untouchable("src", self.src, self.count, "readable")

    def __call__(self) -> None:
        """Carry it out."""
        self.verify()
        into, out_of = self.blocks
        existing = self.count - self.missing
        engines.current.move(self.dst, into, self.src, out_of, existing)
        if self.missing:
            engines.current.fill(self.dst + existing, into, 0, self.missing)

    def touches(self) -> tuple[Touch, ...]:
        """The memory it reads and writes."""
        existing = self.count - self.missing
        return Touch(self.dst, self.dst + self.count, True), Touch(self.src, self.src + existing, False)


class Fill:
    """`count` bytes of `value` at `dst`, inside `block`."""

    __slots__ = ("block", "count", "dst", "value")
    what = "the fill"

    def __init__(self, dst: int, value: int, count: int, block: Block) -> None:
        self.dst, self.value, self.count, self.block = dst, value, count, block

    def __call__(self) -> None:
        """Carry it out."""
        engines.current.fill(self.dst, self.block, self.value, self.count)

    def touches(self) -> tuple[Touch, ...]:
        """The memory it writes."""
        return (Touch(self.dst, self.dst + self.count, True),)


def plan_copy(dst: Any, dest_max: Any, src: Any, count: Any, kind: Any) -> Copy | None:
    """The copy that the arguments of aclrtMemcpy ask for; None if there is nothing to move."""
    to, source = nullable_address("dst", dst), nullable_address("src", src)
    room, amount = size_t("dest_max", dest_max), size_t("count", count)
    if amount == 0:
        return None
    address("dst", to)
    address("src", source)
    direction = integer("kind", kind, 0, _LAST_KIND)
    if amount > room:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID, f"count is {amount}, expected at most dest_max = {room}"
        )
    if to == source:
        return None
    device_dst, device_src = DEVICE.find(to), DEVICE.find(source)
    if direction in _SIDES:
        dst_is_device, src_is_device = _SIDES[direction]
        _check_side("dst", to, device_dst, dst_is_device, direction)
        _check_side("src", source, device_src, src_is_device, direction)
    into, out_of = device_dst or HOST.find(to), device_src or HOST.find(source)
    _check_alive("dst", to, into)
    _check_alive("src", source, out_of)
    missing = 0 if device_src is None else _missing(device_src, source, amount)
    _check_room("dst", to, into, amount)
    if not missing:
        _check_room("src", source, out_of, amount)
    return Copy(to, source, amount, missing, (into, out_of))


def plan_fill(dst: Any, max_count: Any, value: Any, count: Any) -> Fill | None:
    """The fill that the arguments of aclrtMemset ask for; None if there is nothing to fill."""
    to, room = address("dev_ptr", dst), size_t("max_count", max_count)
    byte = integer("value", value, -(2**31), 2**31 - 1) & BYTE_BITS
    amount = size_t("count", count)
    if amount > room:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID, f"count is {amount}, expected at most max_count = {room}"
        )
    if amount == 0:
        return None
    block = DEVICE.owner(to) or HOST.owner(to)
    if block is None:
        raise _wrong_memory("dev_ptr", to, "no live block", "memory of malloc or malloc_host")
    _check_room("dev_ptr", to, block, amount)
    return Fill(to, byte, amount, block)


def free(heap: Heap, other: Heap, name: str, pointer: Any) -> None:
    """Free the block of `heap` that starts at `pointer`; one of the `other` heap is named as such."""
    start = address(name, pointer)
    if heap.owner(start) is None and other.owner(start) is not None:
        raise _wrong_memory(name, start, f"a {other.what} block", f"{heap.what} memory")
    engines.current.settle()
    block = heap.free(start)
    if findings.strict:
        ordering.freed(block.address, block.end)


def _check_side(name: str, pointer: int, block: Block | None, device: bool, kind: int) -> None:
    if device and block is None:
        raise _wrong_memory(name, pointer, "no live device block", f"device memory for {MemcpyKind(kind).name}")
    if not device and block is not None:
        raise _wrong_memory(name, pointer, "a device block", f"host memory for {MemcpyKind(kind).name}")


def _check_alive(name: str, pointer: int, block: Block | None) -> None:
    if block is not None and not block.alive:
        raise _wrong_memory(name, pointer, "a freed block", "live memory")


def _check_room(name: str, pointer: int, block: Block | None, amount: int) -> None:
    if block is not None and pointer + amount > block.end:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID,
            f"count is {amount}, but {name} has only {block.end - pointer} bytes left in its block",
        )


def _missing(block: Block, pointer: int, amount: int) -> int:
    """How many of the bytes asked for lie past the end of a device block that is read."""
    missing = max(pointer + amount - block.end, 0)
    if missing:
        tolerate(
            Kind.READ_PAST_END,
            f"count is {amount}, but src has only {amount - missing} bytes left in its block, expected at most these",
        )
    return missing


def _wrong_memory(name: str, pointer: int, found: str, expected: str) -> AclRuntimeError:
    return AclRuntimeError(
        AclError.ACL_ERROR_RT_INVALID_MEMORY_TYPE, f"{name} {pointer:#x} is in {found}, expected {expected}"
    )


def _untouchable(name: str, pointer: int, count: int, expected: str) -> AclRuntimeError:
    return AclRuntimeError(
        AclError.ACL_ERROR_RT_PARAM_INVALID,
        f"{name} {pointer:#x} is not mapped for {count} bytes, expected {expected} host memory",
    )
