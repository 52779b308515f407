"""Copies and fills: judged when they are asked for, carried out at once or later on a stream.

Where an address lies decides what a copy does; the kind that the caller names is looked at by a checked run alone. An
address in no live block is the program's own memory, and has to be mapped. Writes never leave a block. A read past the
end of a device block copies what exists and gives zeros for the rest, with one warning; `ACLGRAD_STRICT=1` refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import engines, findings, ordering, raw, written
from .arguments import address, integer, nullable_address, size_t
from .blocks import DEVICE, HOST, Block, Heap
from .boundary import AclRuntimeError, remark, tolerate
from .enums import AclError, MemcpyKind
from .findings import Kind
from .ordering import Touch

BYTE_BITS = 0xFF

# (destination is device memory, source is device memory), as a kind says; ACL_MEMCPY_DEFAULT says nothing
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

    @property
    def is_pageable(self) -> bool:
        """True if a side is memory that the runtime has not handed out: nothing keeps it while the copy waits."""
        return None in self.blocks

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

    def follow(self) -> None:
        """In a checked run: note what it writes, and whether what it reads was ever written."""
        into, out_of = self.blocks
        if DEVICE.find(self.src) is out_of and out_of is not None:
            written.read(out_of, self.src, self.count - self.missing, self.what)
        if into is not None:
            written.wrote(into, self.dst, self.count)

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

    def follow(self) -> None:
        """In a checked run: note what it writes."""
        written.wrote(self.block, self.dst, self.count)

    def touches(self) -> tuple[Touch, ...]:
        """The memory it writes."""
        return (Touch(self.dst, self.dst + self.count, True),)


def plan_copy(dst: Any, dest_max: Any, src: Any, count: Any, kind: Any) -> Copy | None:
    """The copy that the arguments of aclrtMemcpy ask for; None if there is nothing to move."""
    to, source = nullable_address("dst", dst), nullable_address("src", src)
    room, amount = size_t("destMax", dest_max), size_t("count", count)
    if amount == 0:
        return None
    address("dst", to)
    address("src", source)
    direction = integer("kind", kind, 0, _LAST_KIND)
    if amount > room:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID, f"count is {amount}, expected at most destMax = {room}"
        )
    if to == source:
        return None
    device_dst, device_src = DEVICE.find(to), DEVICE.find(source)
    found = (device_dst is not None, device_src is not None)
    claimed = _SIDES.get(direction, found)
    if claimed != found:
        _doubt_kind(direction, [("dst", to, claimed[0], found[0]), ("src", source, claimed[1], found[1])], amount)
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
    to, room = address("devPtr", dst), size_t("maxCount", max_count)
    byte = integer("value", value, -(2**31), 2**31 - 1) & BYTE_BITS
    amount = size_t("count", count)
    if amount > room:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_PARAM_INVALID, f"count is {amount}, expected at most maxCount = {room}"
        )
    if amount == 0:
        return None
    block = DEVICE.owner(to) or HOST.owner(to)
    if block is None:
        raise _wrong_memory("devPtr", to, "no live block", "memory of aclrtMalloc or aclrtMallocHost")
    _check_room("devPtr", to, block, amount)
    return Fill(to, byte, amount, block)


def free(heap: Heap, other: Heap, name: str, pointer: Any) -> None:
    """Free the block of `heap` that starts at `pointer`; one of the `other` heap is named as such."""
    start = address(name, pointer)
    if heap.owner(start) is None and other.owner(start) is not None:
        raise _wrong_memory(name, start, f"a {other.what} block", f"{heap.what} memory")
    engines.current.settle()
    block = heap.free(start, name)
    if findings.strict:
        ordering.freed(block.address, block.end)


def refuse_host_to_host(copy: Copy) -> None:
    """Refuse an asynchronous copy without device memory."""
    if DEVICE.find(copy.dst) is None and DEVICE.find(copy.src) is None:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "dst and src are both host memory, expected aclrtMemcpy for that: only copies to or from a device wait",
        )


def handed_out(pointer: int) -> bool:
    """True for an address that nobody but the runtime can have given to the program, now or once."""
    return engines.current.owns(pointer) or engines.current.owns_host(pointer)


def require_room(name: str, pointer: int, amount: int, *, write: bool) -> None:
    """Refuse what reaches past the end of the block that an address lies in, or out of the program's own memory."""
    block = DEVICE.find(pointer) or HOST.find(pointer)
    _check_room(name, pointer, block, amount)
    if block is None and not raw.accessible(pointer, amount, write=write):
        raise _untouchable(name, pointer, amount, "writable" if write else "readable")


def _doubt_kind(kind: int, sides: Sequence[tuple[str, int, bool, bool]], amount: int) -> None:
    """The kind does not fit the addresses. What is called device memory and is none has to be the program's own.

    A side is (name, address, whether the kind calls it device memory, whether it is).
    """
    for name, pointer, said, is_device in sides:
        foreign = said and not is_device and HOST.find(pointer) is None
        if foreign and not raw.accessible(pointer, amount, write=name == "dst"):
            raise _wrong_memory(name, pointer, "no live block", f"device memory for {MemcpyKind(kind).name}")
    if findings.strict:
        where = " and ".join([f"{name} {at:#x} is {'device' if dev else 'host'} memory" for name, at, _, dev in sides])
        remark(Kind.WRONG_KIND, f"kind is {MemcpyKind(kind).name}, but {where}")


def _check_alive(name: str, pointer: int, block: Block | None) -> None:
    """Refuse freed memory, and addresses that only the runtime hands out and that are in no block."""
    if not block.alive if block is not None else handed_out(pointer):
        found = "a freed block" if block is not None else "a freed block or past the end of one"
        raise _wrong_memory(name, pointer, found, "live memory")


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
