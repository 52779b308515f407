"""Memory that the runtime hands out: blocks owned by torch, found by any address inside them.

The engine decides where device memory is. A block remembers the size that was asked for; what is allocated is that size
rounded up to 32 plus 32 bytes, as the device does. Nothing finds a freed block any more, but work that already holds
its tensor keeps the memory itself alive. Small freed blocks are kept aside for a while, so that a stale pointer is
told with its block and cannot hit what the address was reused for; any other is known by the range it lies in.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

from ...core.errors import DeviceMemoryError, NullArgument
from . import engines, findings
from .boundary import AclRuntimeError
from .engine_cpu import physical_memory
from .enums import AclError
from .places import Place
from .written import Written

GRANULE = 32
KEPT_BLOCK_BYTES = 1 << 16
KEPT_BYTES = 1 << 22
KEPT_BLOCKS = 1024


class Borrower(Protocol):
    """Whoever keeps a view of a block and must forget it when the block is freed."""

    def unbind(self) -> None:
        """Forget the view."""


class Block:
    """One allocation: `size` bytes at `address`, as the program has it.

    They lie in the somewhat larger `storage`, `shift` bytes further up.
    """

    __slots__ = ("_typed", "address", "alive", "borrowers", "end", "shift", "size", "storage", "written")

    def __init__(self, size: int, address: int, storage: torch.Tensor) -> None:
        self.size = size
        self.alive = True
        self.storage = storage
        self.address = address
        self.end = address + size
        self.shift = storage.data_ptr() - address
        self.written = Written()  # kept up in a checked run only
        self.borrowers: set[weakref.ref[Borrower]] = set()
        self._typed: dict[torch.dtype, torch.Tensor] = {torch.uint8: self.storage}

    def lend(self, borrower: Borrower) -> None:
        """Call `borrower.unbind()` when the block is freed, should it live that long."""
        self.borrowers.add(weakref.ref(borrower, self.borrowers.discard))

    def view(
        self, address: int, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """A strided tensor `offset` elements behind `address`; nothing outside the size asked for is reachable."""
        itemsize = dtype.itemsize
        first, misaligned = divmod(address - self.address, itemsize)
        if misaligned:
            raise DeviceMemoryError(f"address {address:#x} is misaligned, expected a multiple of {itemsize}")
        last = first + offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        needed = (last + 1) * itemsize
        if needed > self.size:
            raise DeviceMemoryError(
                f"the tensor ends {needed} bytes into its memory block, expected at most the block's {self.size}"
            )
        typed = self._typed.get(dtype)
        if typed is None:
            with torch.inference_mode(False):
                typed = self._typed[dtype] = self.storage.view(dtype)
        return typed.as_strided(shape, strides, first + offset)


class Heap:
    """The live blocks of one kind of memory, `what`.

    `obtain(nbytes, device)` gets more of it, as an address and a tensor; `available(device, used)` says how much there
    is beside what is in use; `owns(address)` says whether an address can be such memory only, now or once.
    """

    def __init__(
        self,
        what: str,
        obtain: Callable[[int, int], tuple[int, torch.Tensor]],
        available: Callable[[int, int], int],
        owns: Callable[[int], bool],
        leak: findings.Kind,
    ) -> None:
        self.what = what
        self.lock = threading.RLock()
        self.used = 0
        self._obtain = obtain
        self._available = available
        self._owns = owns
        self._leak = leak
        self._origins: dict[int, Place | None] = {}
        self._blocks: dict[int, Block] = {}
        self._addresses: list[int] = []
        self._kept: deque[Block] = deque()
        self._kept_bytes = 0
        self.guests: Callable[[int], Block | None] | None = None  # finds memory of its kind that others have allocated
        findings.leak_source(self.leaks)

    def allocate(self, size: int, device: int = 0) -> Block:
        """A new block of uninitialised memory."""
        with self.lock:
            left = self._available(device, self.used)
            if size > left:
                raise self._exhausted(size, left)
            try:
                with torch.inference_mode(False):  # the memory outlives the mode it was asked for in
                    block = Block(size, *self._obtain(-(-size // GRANULE) * GRANULE + GRANULE, device))
            except (RuntimeError, MemoryError):
                raise self._exhausted(size, left) from None
            self.used += size
            if findings.strict:
                self._origins[block.address] = findings.place()
            self._blocks[block.address] = block
            insort(self._addresses, block.address)
        return block

    def free(self, address: int, name: str = "address") -> Block:
        """Forget the block that starts at `address`; its borrowers lose their views."""
        with self.lock:
            block = self._blocks.get(address)
            if block is None or not block.alive:
                raise AclRuntimeError(AclError.ACL_ERROR_RT_MEMORY_FREE, self._not_a_start(name, address))
            block.alive = False
            self.used -= block.size
            self._origins.pop(address, None)
            while block.borrowers:
                borrower = block.borrowers.pop()()
                if borrower is not None:
                    borrower.unbind()
            self._keep(block)
        return block

    def owner(self, address: int) -> Block | None:
        """The live block that contains `address`."""
        block = self.find(address)
        return block if block is not None and block.alive else None

    def find(self, address: int) -> Block | None:
        """The block that contains `address`, also a freed one that is still kept."""
        block = self._blocks.get(address)
        if block is not None:
            return block
        with self.lock:
            index = bisect_right(self._addresses, address) - 1
            block = self._blocks[self._addresses[index]] if index >= 0 else None
        if block is not None and address < block.end:
            return block
        return None if self.guests is None else self.guests(address)

    def view(
        self,
        address: int,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int,
        dtype: torch.dtype,
        borrower: Borrower | None = None,
    ) -> torch.Tensor:
        """A tensor over the block at `address` (bytes; `strides` and `offset` count elements).

        A tensor without elements needs no memory. A `borrower` is told when the block is freed.
        """
        if 0 in shape:
            device = engines.current.torch_device(0)
            return torch.empty(0, dtype=dtype, device=device).as_strided(shape, strides)
        with self.lock:
            block = self.owner(address)
            if block is None:
                if address == 0:
                    raise NullArgument("the data address is null, expected device memory")
                freed = self.find(address) is not None or self._owns(address)
                found = f"in a freed {self.what} block" if freed else f"in no {self.what} block"
                raise DeviceMemoryError(f"address {address:#x} is {found}, expected a live one")
            view = block.view(address, shape, strides, offset, dtype)
            if borrower is not None:
                block.lend(borrower)
        return view

    def leaks(self) -> Iterator[findings.Leak]:
        """What was not freed; asked again, only what came after."""
        for address, place in list(self._origins.items()):
            self._origins.pop(address, None)
            block = self.owner(address)
            if block is not None:
                yield findings.Leak(self._leak, place, block.size)

    def _keep(self, block: Block) -> None:
        if block.size > KEPT_BLOCK_BYTES:
            self._forget(block)
            return
        self._kept.append(block)
        self._kept_bytes += block.size
        while self._kept_bytes > KEPT_BYTES or len(self._kept) > KEPT_BLOCKS:
            oldest = self._kept.popleft()
            self._kept_bytes -= oldest.size
            self._forget(oldest)

    def _forget(self, block: Block) -> None:
        del self._blocks[block.address]
        del self._addresses[bisect_right(self._addresses, block.address) - 1]

    def _exhausted(self, size: int, left: int) -> AclRuntimeError:
        return AclRuntimeError(
            AclError.ACL_ERROR_RT_MEMORY_ALLOCATION,
            f"size is {size}, but only {left} bytes of {self.what} memory are free",
        )

    def _not_a_start(self, name: str, address: int) -> str:
        inside = self.find(address)
        if inside is None:
            found = "in a freed block" if self._owns(address) else "in no block"
        elif not inside.alive and inside.address == address:
            return f"{name} {address:#x} was freed already, expected the start of a live {self.what} block"
        else:
            found = f"{address - inside.address} bytes inside a {'live' if inside.alive else 'freed'} block"
        return f"{name} {address:#x} is {found}, expected the start of a live {self.what} block"


_host_capacity = physical_memory()

DEVICE = Heap(
    "device",
    lambda nbytes, device: engines.current.device_memory(nbytes, device),
    lambda device, used: engines.current.free_memory(device, used),
    lambda address: engines.current.owns(address),
    findings.Kind.DEVICE_MEMORY_LEAKED,
)
HOST = Heap(
    "host",
    lambda nbytes, _: engines.current.host_memory(nbytes),
    lambda _, used: _host_capacity - used,
    lambda address: engines.current.owns_host(address),
    findings.Kind.HOST_MEMORY_LEAKED,
)
