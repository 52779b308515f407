"""CUDA devices: torch owns the memory, a stream is one of torch's, and work is enqueued by the calling thread.

`cuda` is `torch.cuda`, or what stands in for it in tests on a machine without such a device.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .boundary import AclRuntimeError
from .enums import AclError
from .streams import Job, Mark, Stream

if TYPE_CHECKING:
    from .blocks import Block

POLL_SECONDS = 1e-4
_HOST = torch.device("cpu")


class CudaEngine:
    """Every CUDA device that torch sees."""

    name = "cuda"

    def __init__(self, cuda: Any = torch.cuda, device_type: str = "cuda") -> None:
        self._cuda = cuda
        self._type = device_type
        self.count: int = cuda.device_count()
        self.only_device = self.torch_device(0) if self.count == 1 else None

    def torch_device(self, device: int) -> torch.device:
        """Where torch keeps the memory of a device."""
        return torch.device(self._type, device)

    def capacity(self, device: int) -> int:
        """Bytes of memory a device has."""
        return int(self._cuda.get_device_properties(device).total_memory)

    def free_memory(self, device: int, used: int) -> int:  # noqa: ARG002  others use the device too
        """Bytes of a device's memory that are free, with what torch has set aside for itself."""
        with _device_faults():
            free, _ = self._cuda.mem_get_info(device)
            return int(free + self._cuda.memory_reserved(device) - self._cuda.memory_allocated(device))

    def device_memory(self, nbytes: int, device: int) -> tuple[int, torch.Tensor]:
        """(address as the program has it, uninitialised memory) of a device."""
        memory = torch.empty(nbytes, dtype=torch.uint8, device=self.torch_device(device))
        return memory.data_ptr(), memory

    def can_reach(self, device: int, other: int) -> bool:
        """True if the driver connects two devices."""
        return bool(self._cuda.can_device_access_peer(device, other))

    def owns(self, address: int) -> bool:  # noqa: ARG002
        """True for none: an address of a GPU is not mapped for the host, which tells as much."""
        return False

    def renew(self) -> None:
        """Nothing depends on the kind of run."""

    def host_memory(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """Page-locked memory, which copies without a detour."""
        memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=self._type == "cuda")
        return memory.data_ptr(), memory

    def owns_host(self, address: int) -> bool:  # noqa: ARG002
        """True for none: torch decides where such memory lies."""
        return False

    def stream(self, device: int, *, is_default: bool) -> Stream:
        """A new stream, or torch's default one."""
        make = self._cuda.default_stream if is_default else self._cuda.Stream
        return CudaStream(self._cuda, make(device))

    def at_once(self, job: Job, device: int) -> None:
        """Run a copy or fill on the default stream and return when it is done."""
        stream = self._cuda.default_stream(device)
        with _device_faults():
            with self._cuda.stream(stream):
                job()
            stream.synchronize()

    def move(self, dst: int, into: Block | None, src: int, out_of: Block | None, count: int) -> None:
        """Copy bytes on the current stream."""
        target, source = _bytes(dst, into, count), _bytes(src, out_of, count)
        if source.device == target.device == _HOST:
            self._cuda.current_stream().synchronize()  # the host does it, and must wait its turn
        overlap = dst < src + count and src < dst + count
        target.copy_(source.clone() if overlap else source, non_blocking=True)

    def fill(self, dst: int, into: Block | None, value: int, count: int) -> None:
        """Set bytes on the current stream."""
        target = _bytes(dst, into, count)
        if target.device == _HOST:
            self._cuda.current_stream().synchronize()
        target.fill_(value)

    def settle(self) -> None:
        """Wait for every device: torch would hand freed memory to other streams at once."""
        with _device_faults():
            for device in range(self.count):
                self._cuda.synchronize(device)


@contextmanager
def _device_faults() -> Iterator[None]:
    """What CUDA reports, with the runtime's code. Its first line says what happened, the others are torch's advice."""
    try:
        yield
    except AclRuntimeError:
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise AclRuntimeError(AclError.ACL_ERROR_RT_AICORE_EXCEPTION, f"the device failed: {reason}") from error


def _bytes(address: int, block: Block | None, count: int) -> torch.Tensor:
    """A tensor over `count` bytes at `address`, which are in a block or the program's own."""
    if block is not None:
        start = address - block.address
        return block.storage[start : start + count]
    return torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)


class CudaMark(Mark):
    """A CUDA event, recorded once."""

    __slots__ = ("event",)

    def __init__(self, event: Any) -> None:
        self.event = event

    @property
    def reached(self) -> bool:
        """True once the stream has come here."""
        with _device_faults():
            return bool(self.event.query())

    def wait(self, seconds: float | None = None) -> bool:
        """Block until the stream has come here; False if it has not in so many seconds."""
        if seconds is not None:
            deadline = time.monotonic() + seconds
            while not self.reached:
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL_SECONDS)
        with _device_faults():
            self.event.synchronize()
        return True

    def microseconds(self) -> int:
        """When the host knew: a device tells only times between events."""
        self.wait()
        return time.perf_counter_ns() // 1000

    def milliseconds_since(self, earlier: Mark) -> float:
        """Time from an earlier mark to this one, by the device's clock."""
        assert isinstance(earlier, CudaMark)
        return float(earlier.event.elapsed_time(self.event))


class CudaStream(Stream):
    """One of torch's streams. A failure of the device shows when somebody asks or waits."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        super().__init__()
        self._cuda = cuda
        self._stream = stream

    @property
    def idle(self) -> bool:
        """True if all submitted work is done, or will never be."""
        try:
            with _device_faults():
                return bool(self._stream.query())
        except AclRuntimeError as fault:
            self._fail(fault)
            return True

    def submit(self, job: Job, *, small: bool = False) -> None:  # noqa: ARG002  enqueuing is all there is to do
        """Enqueue `job`."""
        with self._lock:
            self._refuse_if_closed()
            try:
                with _device_faults(), self._cuda.stream(self._stream):
                    self._run(job)
            except Exception as error:  # noqa: BLE001  kept for the next synchronisation
                self._fail(error)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all submitted work is done, and leave its failure to be reported."""
        if seconds is not None:
            deadline = time.monotonic() + seconds
            while not self.idle:
                if time.monotonic() > deadline:
                    raise AclRuntimeError(
                        AclError.ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, f"tasks are unfinished after {seconds} s"
                    )
                time.sleep(POLL_SECONDS)
            return
        try:
            with _device_faults():
                self._stream.synchronize()
        except AclRuntimeError as fault:
            self._fail(fault)

    def close(self) -> None:
        """Finish the submitted work and accept no more."""
        self.wait()
        self._closed = True

    def mark(self) -> Mark:
        """A new mark at the end of the submitted work."""
        event = self._cuda.Event(enable_timing=True)
        self.submit(lambda: event.record(self._stream))
        return CudaMark(event)

    def hold(self, mark: Mark) -> None:
        """Let later work wait for a mark, on the device."""
        assert isinstance(mark, CudaMark)
        self.submit(lambda: self._stream.wait_event(mark.event))
