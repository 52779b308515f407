"""The steps of a recurrence, launched one by one without Python in between.

A step is some products of the vendor's library and a kernel that takes the step's number. Each is a call of a C
function, cublasGemmEx or cuLaunchKernel, so that a table of calls (`cpu.calls`) runs them all. Where these functions
are not to be found, Python calls torch and Triton step by step.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..core.errors import Unsupported
from .launch import INTERPRETING, Kernel, Loaded, Pointer, addresses_of
from .products import LibraryProduct, multiply

if TYPE_CHECKING:
    from ..cpu.calls import CCall  # compiles with numba, which is imported when it is needed

TRANSPOSED, AS_IT_IS = 1, 0  # CUBLAS_OP_T, CUBLAS_OP_N
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
COMPUTE, COMPUTE_TF32 = 68, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
ALGORITHM = 99  # CUBLAS_GEMM_DEFAULT_TENSOR_OP: the library decides
FACTORS = np.array([0.0, 1.0], dtype=np.float32)  # where the library reads 0 and 1


class Library(NamedTuple):
    """Addresses of the C functions."""

    launch: int  # cuLaunchKernel
    multiply: int  # cublasGemmEx
    multiply_batch: int  # cublasGemmStridedBatchedEx


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
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        return Library(address(launch), address(linked.cublasGemmEx), address(linked.cublasGemmStridedBatchedEx))
    except (OSError, AttributeError, Unsupported):
        return None


def run_steps(
    kernel: Kernel, pointers: Sequence[Pointer], steps: int, products: Sequence[Sequence[LibraryProduct]] = ((),)
) -> None:
    """Launch the kernel for steps 0, 1, …, whose number it takes behind its pointers.

    Before each step but the first, the products of phase `step % len(products)` are made. Only those of a single phase
    may advance.
    """
    calls = _calls(kernel, pointers, products) if library() is not None else None
    if calls is None:
        _python_steps(kernel, pointers, steps, products)
        return
    from ..cpu.calls import walk

    phases, clock, _alive = calls
    failed = walk([[phases[0][-1]]], clock, 0, 1)
    if not failed and steps > 1:
        failed = walk(phases, clock, 1, steps)
    if failed:
        raise RuntimeError(f"a launch or a product of a step failed with the library's status {failed}")


def _python_steps(
    kernel: Kernel, pointers: Sequence[Pointer], steps: int, products: Sequence[Sequence[LibraryProduct]]
) -> None:
    launch = kernel.fixed(*pointers)
    for step in range(steps):
        for product in products[step % len(products)] if step else ():
            a = product.a
            if product.advance:
                offset = a.storage_offset() + (step - 1) * product.advance
                a = a.as_strided(a.shape, a.stride(), offset)
            multiply(product.out, a, product.b, add=product.adds)
        launch(step)


def _calls(
    kernel: Kernel, pointers: Sequence[Pointer], products: Sequence[Sequence[LibraryProduct]]
) -> tuple[list[list[CCall]], int, Any] | None:
    """The calls of each phase, where the step's number is to be written, and what must stay alive meanwhile."""
    addresses, _ = addresses_of(pointers)
    loaded = kernel.loaded([*addresses, 0])
    if loaded is None or not _is_plain(loaded.kernel):
        return None
    slots, clock = _slots(loaded, len(addresses))
    launch = _launch(loaded, slots)
    cuda: Any = torch.cuda  # torch leaves this untyped
    handle = cuda.current_blas_handle() if any(products) else 0
    phases = [[*(_product(product, handle) for product in of_phase), launch] for of_phase in products]
    return phases, clock, slots


def _is_plain(kernel: Any) -> bool:
    """Whether a launch takes no more than grid, shared memory and parameters."""
    metadata, launcher = kernel.metadata, kernel.run
    special = launcher.launch_cooperative_grid or launcher.launch_pdl or metadata.num_ctas != 1
    return not (special or launcher.global_scratch_size or launcher.profile_scratch_size)


def _slots(loaded: Loaded, step_index: int) -> tuple[np.ndarray[Any, Any], int]:
    """Where the driver reads the parameters: their values, then the address of each; the address of the step's."""
    signature = list(loaded.kernel.src.signature.values())
    words = [[*_words(kind, value)] for kind, value in zip(signature, loaded.values, strict=True)]
    flat = [word for of_parameter in words for word in of_parameter]
    count = len(flat) + 2  # Triton's kernels have two more, for scratch memory
    slots = np.zeros(2 * count, dtype=np.uint64)
    slots[: len(flat)] = np.array(flat, dtype=np.int64).view(np.uint64)
    base = slots.ctypes.data
    slots[count:] = [base + 8 * k for k in range(count)]
    return slots, base + 8 * sum(map(len, words[:step_index]))


def _words(kind: Any, value: Any) -> Iterator[int]:
    """The parameters that a value of the function becomes: none if it is known to the compiler."""
    if isinstance(kind, tuple):
        for of_member, member in zip(kind, value, strict=True):
            yield from _words(of_member, member)
    elif kind == "fp32":
        yield struct.unpack("i", struct.pack("f", value))[0]
    elif kind != "constexpr":
        yield value


def _launch(loaded: Loaded, slots: np.ndarray[Any, Any]) -> CCall:
    known = library()
    assert known is not None
    metadata = loaded.kernel.metadata
    stream = torch.cuda.current_stream().cuda_stream
    parameters = slots.ctypes.data + 4 * slots.size  # the second half
    threads = 32 * metadata.num_warps
    arguments = [loaded.kernel.function, *loaded.grid, threads, 1, 1, metadata.shared, stream, parameters]
    return _c_call(known.launch, arguments)


def _product(product: LibraryProduct, handle: int) -> CCall:
    """As the library sees it, with rows for columns: outᵀ = bᵀ · aᵀ."""
    known = library()
    assert known is not None
    out, a, b = product.out, product.a, product.b
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    (b_as, b_stride), (a_as, a_stride) = _layout(b), _layout(a)
    one, zero = FACTORS[1:].ctypes.data, FACTORS.ctypes.data
    step = product.advance * a.element_size()
    operands = [
        [b.data_ptr(), TYPES[b.dtype], b_stride],
        [a.data_ptr() - step, TYPES[a.dtype], a_stride],  # in turn 0
        [out.data_ptr(), TYPES[out.dtype], out.stride(-2)],
    ]
    batched = out.dim() == 3
    if batched:
        for operand, tensor in zip(operands, (b, a, out), strict=True):
            operand.append(tensor.stride(0))
    tf32 = a.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    arguments = [handle, b_as, a_as, columns, rows, depth, one, *operands[0], *operands[1]]
    arguments += [one if product.adds else zero, *operands[2], *([out.shape[0]] if batched else [])]
    arguments += [COMPUTE_TF32 if tf32 else COMPUTE, ALGORITHM]
    a_at = 7 + len(operands[0])  # behind b
    return _c_call(known.multiply_batch if batched else known.multiply, arguments, {a_at: step})


def _c_call(function: int, arguments: Sequence[int], advances: dict[int, int] | None = None) -> CCall:
    from ..cpu.calls import CCall

    return CCall(function, arguments, advances or {})


def _layout(matrix: torch.Tensor) -> tuple[int, int]:
    """How the library takes a matrix, and the elements from one of its rows (or columns) to the next."""
    row, column = matrix.stride()[-2:]
    return (AS_IT_IS, row) if column == 1 else (TRANSPOSED, column)
