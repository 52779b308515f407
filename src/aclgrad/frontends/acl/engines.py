"""The engine that device memory and streams live on: `ACLGRAD_DEVICE=cpu` (the default) or `cuda`.

It is chosen when the runtime is initialised or, in a program that never does so, when a device is first asked for; it
cannot change while device memory or contexts are alive.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import torch

from .boundary import AclRuntimeError
from .engine_cpu import CpuEngine
from .engine_cuda import CudaEngine
from .enums import AclError

if TYPE_CHECKING:
    from .blocks import Block
    from .streams import Job, Stream

VARIABLE = "ACLGRAD_DEVICE"


class Engine(Protocol):
    """What differs between kinds of devices. Addresses are as the program has them; sizes are in bytes."""

    @property
    def name(self) -> str:
        """The value of ACLGRAD_DEVICE that asks for it."""

    @property
    def count(self) -> int:
        """Number of devices."""

    @property
    def only_device(self) -> torch.device | None:
        """Where torch keeps device memory, if there is only one such place."""

    def torch_device(self, device: int) -> torch.device:
        """Where torch keeps the memory of a device."""

    def capacity(self, device: int) -> int:
        """Memory that a device has."""

    def free_memory(self, device: int, used: int) -> int:
        """Memory of a device that is free while `used` bytes are handed out."""

    def device_memory(self, nbytes: int, device: int) -> tuple[int, torch.Tensor]:
        """(address as the program has it, uninitialised memory) on a device."""

    def can_reach(self, device: int, other: int) -> bool:
        """True if a device can read and write the memory of another one."""

    def owns(self, address: int) -> bool:
        """True for an address that can be device memory only, now or once."""

    def host_memory(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """(address, uninitialised memory) of the host, in a form that copies quickly."""

    def owns_host(self, address: int) -> bool:
        """True for an address that can be such host memory only, now or once."""

    def stream(self, device: int, *, is_default: bool) -> Stream:
        """A new stream, or the one that the null handle is to mean."""

    def at_once(self, job: Job, device: int) -> None:
        """Run a copy or fill behind the work of the device's default stream; return when it is done."""

    def move(self, dst: int, into: Block | None, src: int, out_of: Block | None, count: int) -> None:
        """Copy bytes, also between ranges that overlap; the blocks are None for the program's own memory."""

    def fill(self, dst: int, into: Block | None, value: int, count: int) -> None:
        """Set bytes."""

    def renew(self) -> None:
        """Nothing of it is in use: what depends on the kind of run may change."""

    def settle(self) -> None:
        """Return when memory may be freed that submitted work uses."""


current: Engine = CpuEngine()
"""The engine in use."""


def configure(*, in_use: bool) -> None:
    """Take the engine that the environment asks for; refused if it is another one than the one `in_use`."""
    global current
    wanted = os.environ.get(VARIABLE) or CpuEngine.name
    if wanted == current.name:
        if not in_use:
            current.renew()
        return
    if wanted not in ("cpu", "cuda"):
        raise AclRuntimeError(AclError.ACL_ERROR_INVALID_PARAM, f"{VARIABLE} is {wanted!r}, expected cpu or cuda")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise AclRuntimeError(
            AclError.ACL_ERROR_RT_NO_DEVICE, f"{VARIABLE} is 'cuda', but torch finds no CUDA device, expected one"
        )
    if in_use:
        raise AclRuntimeError(
            AclError.ACL_ERROR_INVALID_PARAM,
            f"{VARIABLE} is {wanted!r}, but memory or contexts of {current.name} are alive, expected no change",
        )
    current = CpuEngine() if wanted == "cpu" else CudaEngine()
