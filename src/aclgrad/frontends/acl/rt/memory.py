"""Device and host memory.

The synchronous copy and fill first let the default stream of the calling thread's context finish, and wait for no
other stream: whoever copies results of another stream synchronises that stream before.
"""

from __future__ import annotations

from typing import Any

from ....core.errors import InvalidArgument
from .. import engines, findings, ordering
from ..arguments import address, integer, member, nullable_address, size_t
from ..blocks import DEVICE, HOST
from ..boundary import AclRuntimeError, after, code_only, runtime_call
from ..devices import current_context, stream_of, synchronize_streams, wait_for_default_stream
from ..enums import SUCCESS, AclError, MallocPolicy, MemAttr
from ..streams import Stream
from ..transfers import Copy, Fill, plan_copy, plan_fill, refuse_host_to_host, require_room
from ..transfers import free as free_block

SMALL_BYTES = 1 << 16  # copied in less time than a thread switch takes
_PAGE_POLICY_BITS = 0xFF
_POLICY_FLAGS = (
    MallocPolicy.ACL_MEM_TYPE_LOW_BAND_WIDTH
    | MallocPolicy.ACL_MEM_TYPE_HIGH_BAND_WIDTH
    | MallocPolicy.ACL_MEM_ACCESS_USER_SPACE_READONLY
)


@runtime_call("aclrtMalloc", after(0))
def malloc(size: Any, policy: Any) -> tuple[int, int]:
    """(address of new device memory, 64-byte aligned and uninitialised, ret)."""
    return _malloc(size, policy), SUCCESS


@runtime_call("aclrtMallocAlign32", after(0))
def malloc_align32(size: Any, policy: Any) -> tuple[int, int]:
    """Like `malloc`, whose addresses are aligned to more than 32 bytes anyhow."""
    return _malloc(size, policy), SUCCESS


@runtime_call("aclrtMallocCached", after(0))
def malloc_cached(size: Any, policy: Any) -> tuple[int, int]:
    """Like `malloc`; there is no cache to flush."""
    return _malloc(size, policy), SUCCESS


@runtime_call("aclrtMallocWithCfg", after(0))
def malloc_with_cfg(size: Any, policy: Any, cfg: Any) -> tuple[int, int]:
    """Like `malloc`; what a configuration asks for has no effect."""
    nullable_address("cfg", cfg)
    return _malloc(size, policy), SUCCESS


@runtime_call("aclrtMallocHostWithCfg", after(0))
def malloc_host_with_cfg(size: Any, cfg: Any) -> tuple[int, int]:
    """Like `malloc_host`; what a configuration asks for has no effect."""
    nullable_address("cfg", cfg)
    return HOST.allocate(_positive_size(size)).address, SUCCESS


@runtime_call("aclrtMemFlush", code_only)
def mem_flush(dev_ptr: Any, size: Any) -> int:
    """Write back a cache, which there is not."""
    _require_block(dev_ptr, size)
    return SUCCESS


@runtime_call("aclrtMemInvalidate", code_only)
def mem_invalidate(dev_ptr: Any, size: Any) -> int:
    """Forget a cache, which there is not."""
    _require_block(dev_ptr, size)
    return SUCCESS


@runtime_call("aclrtFreeWithDevSync", code_only)
def free_with_dev_sync(dev_ptr: Any) -> int:
    """Wait for all work of the current device, then free device memory."""
    synchronize_streams(current_context().device)
    free_block(DEVICE, HOST, "devPtr", dev_ptr)
    return SUCCESS


@runtime_call("aclrtFreeHostWithDevSync", code_only)
def free_host_with_dev_sync(host_ptr: Any) -> int:
    """Wait for all work of the current device, then free host memory."""
    synchronize_streams(current_context().device)
    free_block(HOST, DEVICE, "hostPtr", host_ptr)
    return SUCCESS


@runtime_call("aclrtFree", code_only)
def free(dev_ptr: Any) -> int:
    """Free device memory; work already submitted still finishes on it."""
    free_block(DEVICE, HOST, "devPtr", dev_ptr)
    return SUCCESS


@runtime_call("aclrtMallocHost", after(0))
def malloc_host(size: Any) -> tuple[int, int]:
    """(address of new host memory, ret)."""
    return HOST.allocate(_positive_size(size)).address, SUCCESS


@runtime_call("aclrtFreeHost", code_only)
def free_host(host_ptr: Any) -> int:
    """Free memory of `malloc_host`."""
    free_block(HOST, DEVICE, "hostPtr", host_ptr)
    return SUCCESS


@runtime_call("aclrtMemcpy", code_only)
def memcpy(dst: Any, dest_max: Any, src: Any, count: Any, kind: Any) -> int:
    """Copy `count` bytes and return when it is done."""
    copy = plan_copy(dst, dest_max, src, count, kind)
    if copy is not None:
        _at_once(copy)
    return SUCCESS


@runtime_call("aclrtMemcpyAsync", code_only)
def memcpy_async(dst: Any, dest_max: Any, src: Any, count: Any, kind: Any, stream: Any) -> int:
    """Copy `count` bytes as work of a stream; at once, behind its work, if host memory is not of `malloc_host`."""
    copy, target = plan_copy(dst, dest_max, src, count, kind), stream_of(stream)
    if copy is not None:
        _copy_on(target, copy)
    return SUCCESS


@runtime_call("aclrtMemset", code_only)
def memset(dev_ptr: Any, max_count: Any, value: Any, count: Any) -> int:
    """Set `count` bytes to the low byte of `value` and return when it is done."""
    fill = plan_fill(dev_ptr, max_count, value, count)
    if fill is not None:
        _at_once(fill)
    return SUCCESS


@runtime_call("aclrtMemsetAsync", code_only)
def memset_async(dev_ptr: Any, max_count: Any, value: Any, count: Any, stream: Any) -> int:
    """Like `memset`, as work of a stream."""
    fill, target = plan_fill(dev_ptr, max_count, value, count), stream_of(stream)
    if fill is not None:
        _enqueue(fill, target)
    return SUCCESS


@runtime_call("aclrtGetMemInfo", after(0, 0))
def get_mem_info(attr: Any) -> tuple[int, int, int]:
    """(free bytes, total bytes, ret) of the device memory."""
    member("attr", attr, MemAttr)
    device = current_context().device
    return engines.current.free_memory(device, DEVICE.used), engines.current.capacity(device), SUCCESS


def _at_once(transfer: Copy | Fill) -> None:
    device = wait_for_default_stream()
    if findings.strict:
        ordering.touched(transfer.what, transfer.touches())
        transfer.follow()
    engines.current.at_once(transfer, device)


def _copy_on(stream: Stream, copy: Copy) -> None:
    """Copy as work of a stream; memory that nothing keeps meanwhile, at once and behind the stream's work."""
    refuse_host_to_host(copy)
    if copy.is_pageable:
        stream.synchronize()
        _at_once(copy)
    else:
        _enqueue(copy, stream)


def _enqueue(transfer: Copy | Fill, stream: Stream) -> None:
    if findings.strict:
        ordering.submitted(stream, transfer.what, transfer.touches())
        transfer.follow()
    stream.submit(transfer, small=transfer.count <= SMALL_BYTES)


@runtime_call("aclrtMemcpy2d", code_only)
def memcpy_2d(dst: Any, dpitch: Any, src: Any, spitch: Any, width: Any, height: Any, kind: Any) -> int:
    """Copy `height` rows of `width` bytes, which lie `dpitch` and `spitch` bytes apart."""
    for copy in _rows(dst, dpitch, src, spitch, width, height, kind):
        _at_once(copy)
    return SUCCESS


@runtime_call("aclrtMemcpy2dAsync", code_only)
def memcpy_2d_async(
    dst: Any, dpitch: Any, src: Any, spitch: Any, width: Any, height: Any, kind: Any, stream: Any
) -> int:
    """Like `memcpy_2d`, as work of a stream."""
    target = stream_of(stream)
    for copy in _rows(dst, dpitch, src, spitch, width, height, kind):
        _copy_on(target, copy)
    return SUCCESS


def _rows(dst: Any, dpitch: Any, src: Any, spitch: Any, width: Any, height: Any, kind: Any) -> list[Copy]:
    """The copies of all rows, judged before the first is made."""
    to, source, columns, rows = (
        address("dst", dst),
        address("src", src),
        size_t("width", width),
        size_t("height", height),
    )
    steps = size_t("dpitch", dpitch), size_t("spitch", spitch)
    for name, step in zip(("dpitch", "spitch"), steps, strict=True):
        if columns > step:
            raise InvalidArgument(f"width is {columns}, expected at most {name} = {step}", "width")
    if not columns or not rows:
        return []
    for name, start, step in (("dst", to, steps[0]), ("src", source, steps[1])):
        require_room(name, start, (rows - 1) * step + columns, write=name == "dst")
    planned = (plan_copy(to + k * steps[0], columns, source + k * steps[1], columns, kind) for k in range(rows))
    return [copy for copy in planned if copy is not None]


def _malloc(size: Any, policy: Any) -> int:
    amount = _positive_size(size)
    _check_policy(integer("policy", policy, 0, 2**31 - 1))
    return DEVICE.allocate(amount, current_context().device).address


def _require_block(dev_ptr: Any, size: Any) -> None:
    place, amount = address("devPtr", dev_ptr), size_t("size", size)
    block = DEVICE.owner(place)
    if block is None or place + amount > block.end:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_INVALID_MEMORY_TYPE,
            f"devPtr {place:#x} has no {amount} bytes in a live device block, expected them",
        )


def _positive_size(value: Any) -> int:
    amount = size_t("size", value)
    if amount == 0:
        raise InvalidArgument("size is 0, expected at least 1", "size")
    return amount


def _check_policy(policy: int) -> None:
    pages = policy & _PAGE_POLICY_BITS
    if pages > MallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P or (policy ^ pages) & ~_POLICY_FLAGS:
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_INVALID_MALLOC_TYPE,
            f"policy is {policy:#x}, expected a page policy of 0 to 7 with flags of {_POLICY_FLAGS:#x}",
        )
