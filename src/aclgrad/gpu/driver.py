"""The C functions of CUDA's driver and of cuBLAS, and how they are called.

A call is made at once, or written down to be made later with other memory (`tape`). So what it is given is said by
`Words`: an address as it is, or a word that lies open until then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from ..core.errors import Unsupported
from .launch import INTERPRETING

if TYPE_CHECKING:
    from ..cpu.calls import CCall, Word  # compiles with numba, which is imported when it is needed


class Library(NamedTuple):
    """Addresses of the C functions."""

    launch: int  # cuLaunchKernel
    launch_with: int  # cuLaunchKernelEx, for launches with attributes
    multiply: int  # cublasGemmEx
    multiply_batch: int  # cublasGemmStridedBatchedEx
    copy: int  # cuMemcpyDtoDAsync
    zero: int  # cuMemsetD8Async
    lead: int  # cuTensorMapReplaceAddress


DRIVER = {
    "launch": "cuLaunchKernel", "launch_with": "cuLaunchKernelEx", "copy": "cuMemcpyDtoDAsync_v2",
    "zero": "cuMemsetD8Async", "lead": "cuTensorMapReplaceAddress",
}  # fmt: skip
CUBLAS = {"multiply": "cublasGemmEx", "multiply_batch": "cublasGemmStridedBatchedEx"}


@cache
def library() -> Library | None:
    """Those of the libraries that torch has loaded; None where there are none, or numba cannot compile calls."""
    if INTERPRETING or torch.version.cuda is None:
        return None
    from ..cpu.compiler import require_compilation
    from ..cpu.openmp import address

    try:
        require_compilation()
        linked = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
        driver = ctypes.CDLL("libcuda.so.1")
        found = {name: address(getattr(driver, symbol)) for name, symbol in DRIVER.items()}
        return Library(**found, **{name: address(getattr(linked, symbol)) for name, symbol in CUBLAS.items()})
    except (OSError, AttributeError, Unsupported):
        return None


class NotAsACall(Exception):
    """What a launch does cannot be written as calls of these functions."""


class Words(Protocol):
    """How a call is told where memory lies and where it belongs."""

    @property
    def stream(self) -> Word:
        """The current stream."""

    @property
    def handle(self) -> Word:
        """cuBLAS's handle for that stream."""

    def pointer(self, address: int) -> Word:
        """An address on the device."""

    def rows(self, count: int) -> Word:
        """The number of rows of the call (`launch.RowCount`)."""


class Now:
    """Words of a call that is made at once."""

    @property
    def stream(self) -> int:
        """See `Words`."""
        return current_stream(torch.cuda.current_device())

    @property
    def handle(self) -> int:
        """See `Words`."""
        return current_handle()

    def pointer(self, address: int) -> int:
        """See `Words`."""
        return address

    def rows(self, count: int) -> int:
        """See `Words`."""
        return count


def current_stream(device: int) -> int:
    """The device's current stream."""
    stream: int = torch._C._cuda_getCurrentRawStream(device)
    return stream


def current_handle() -> int:
    """cuBLAS's handle of this thread, bound to the current stream and to memory of torch's."""
    cuda: Any = torch.cuda  # torch leaves this untyped
    handle: int = cuda.current_blas_handle()
    return handle


def copy_call(target: int, source: int, nbytes: int, words: Words) -> CCall:
    """Copy bytes."""
    return c_call(functions().copy, [words.pointer(target), words.pointer(source), nbytes, words.stream])


def zero_call(target: int, nbytes: int, words: Words) -> CCall:
    """Write zero bytes."""
    return c_call(functions().zero, [words.pointer(target), 0, nbytes, words.stream])


@cache
def _function(address: int, words: int) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * words)(address)


def make(call: CCall) -> None:
    """Make a call at once, none of whose words lies open."""
    require_success(_function(call.function, len(call.arguments))(*call.arguments))


def require_success(status: int) -> None:
    """Raise what the driver or the library says."""
    if status:
        raise RuntimeError(f"a launch, a product or a copy failed with the library's status {status}")


def functions() -> Library:
    """Those that are known to be there."""
    known = library()
    assert known is not None
    return known


def c_call(function: int, arguments: Sequence[Word], advances: dict[int, int] | None = None) -> CCall:
    """A call as a row of a table."""
    from ..cpu.calls import CCall

    return CCall(function, arguments, advances or {})
