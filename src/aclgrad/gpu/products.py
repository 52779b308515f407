"""Products by the vendor's library, into memory that is given, and what they are known to be like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .driver import NotAsACall, Now, Words, c_call, functions, library, make
from .launch import ALIGNED, INTERPRETING, recording

if TYPE_CHECKING:
    from ..cpu.calls import CCall, Word

TILE = (128, 256)
"""Rows and columns of a large product that a multiprocessor takes at a time; our own products do likewise."""

TRANSPOSED, AS_IT_IS = 1, 0  # CUBLAS_OP_T, CUBLAS_OP_N
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
COMPUTE, COMPUTE_TF32 = 68, 77  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
ALGORITHM = 99  # CUBLAS_GEMM_DEFAULT_TENSOR_OP: the library decides
WORTH_CUTTING = 1 << 30
"""Additions of a product from which on another launch is worth it."""

FACTORS = np.array([0.0, 1.0], dtype=np.float32)  # where the library reads 0 and 1


class LibraryProduct(NamedTuple):
    """out = a · b, or out += a · b if it `adds`; of two or three dimensions, as `multiply` takes them.

    In a recurrence (`steps`) `a` is as it is before step 1, and lies `advance` elements further at every next step.
    """

    out: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    adds: bool = False
    advance: int = 0


def multiply(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, add: bool = False) -> None:
    """Write a · b, or add it to what is there, accumulated in float32 and rounded once to the type of `out`.

    That is the operands' type, or float32. Operands of three dimensions are as many products as the first one counts.
    The library is called as it is where launches are written down (`tape`), so that the bits are the same.
    """
    if INTERPRETING:  # on the CPU, where the library has no products of mixed types
        found = a.float() @ b.float()
        out.copy_(out + found if add else found)
        return
    recorder, product = recording.recorder, LibraryProduct(out, a, b, add)
    if recorder is not None:
        recorder.product(product)
        return
    if library() is not None:
        try:
            make(product_call(product, Now()))
        except NotAsACall:
            pass
        else:
            return
    _multiply_by_torch(out, a, b, add)


def multiply_in_parts(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, add: bool = False) -> None:
    """`multiply` matrices, cut where that is faster.

    Of half types the library takes a kernel six times as slow where a side along which an operand is gapless is no
    whole number of 16 bytes, although all rows begin at aligned addresses. So what is beyond makes a product of its
    own. A sum is cut only where it is kept in float32, that it may be rounded once.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    unit = ALIGNED // a.element_size()
    if a.element_size() == 2 and rows * depth * columns >= WORTH_CUTTING and _all_aligned(out, a, b):
        sums = out.dtype == torch.float32 and (a.stride(1) == 1 or b.stride(0) == 1)
        at = rows // unit * unit
        if a.stride(1) != 1 and 0 < at < rows:
            multiply_in_parts(out[:at], a[:at], b, add=add)
            multiply(out[at:], a[at:], b, add=add)
            return
        at = columns // unit * unit
        if 0 < at < columns:
            multiply_in_parts(out[:, :at], a, b[:, :at], add=add)
            multiply(out[:, at:], a, b[:, at:], add=add)
            return
        at = depth // unit * unit
        if sums and 0 < at < depth:
            multiply(out, a[:, :at], b[:at], add=add)
            multiply(out, a[:, at:], b[at:], add=True)
            return
    multiply(out, a, b, add=add)


def _all_aligned(*matrices: torch.Tensor) -> bool:
    """Whether every row, or column, begins at an aligned address."""
    steps = [max(t.stride()) * t.element_size() for t in matrices]
    return not any((step | t.data_ptr()) % ALIGNED for step, t in zip(steps, matrices, strict=True))


def _multiply_by_torch(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, add: bool) -> None:
    plain, adding = (torch.mm, torch.addmm) if out.dim() == 2 else (torch.bmm, torch.baddbmm)
    if out.dtype == a.dtype:
        adding(out, a, b, out=out) if add else plain(a, b, out=out)
    else:
        wide = torch.float32
        adding(out, a, b, out_dtype=wide, out=out) if add else plain(a, b, out_dtype=wide, out=out)


def allows_tf32() -> bool:
    """Whether torch's switch for products of float32 allows TF32, whichever of its two names was used to set it."""
    if recording.recorder is not None:
        recording.recorder.obeys = True
    found = getattr(torch._C, "_get_fp32_precision_getter", None)
    if found is None:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return bool(found("cuda", "matmul") == "tf32")


def settings() -> tuple[Any, ...]:
    """Torch's switches that products of the library obey."""
    switches = torch._C
    return (
        allows_tf32(),
        switches._get_cublas_allow_fp16_reduced_precision_reduction(),
        switches._get_cublas_allow_bf16_reduced_precision_reduction(),
    )


def product_call(product: LibraryProduct, words: Words) -> CCall:
    """As the library sees it, with rows for columns: outᵀ = bᵀ · aᵀ."""
    out, a, b = product.out, product.a, product.b
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    (b_as, b_stride), (a_as, a_stride), (out_as, out_stride) = map(_layout, (b, a, out))
    if out_as != AS_IT_IS or not out.numel() or not depth:
        raise NotAsACall("a product of nothing, or into columns")
    if not _reduces_as_usual(out.dtype):
        raise NotAsACall("torch's switch for sums in half precision is off")
    one, zero = FACTORS[1:].ctypes.data, FACTORS.ctypes.data
    step = product.advance * a.element_size()
    operands: list[list[Word]] = [
        [words.pointer(b.data_ptr()), TYPES[b.dtype], b_stride],
        [_back(words.pointer(a.data_ptr()), step), TYPES[a.dtype], a_stride],  # in turn 0
        [words.pointer(out.data_ptr()), TYPES[out.dtype], out_stride],
    ]
    batched = out.dim() == 3
    if batched:
        for operand, tensor in zip(operands, (b, a, out), strict=True):
            operand.append(tensor.stride(0))
    tf32 = a.dtype == torch.float32 and allows_tf32()
    arguments: list[Word] = [words.handle, b_as, a_as, columns, rows, depth, one, *operands[0], *operands[1]]
    arguments += [one if product.adds else zero, *operands[2], *([out.shape[0]] if batched else [])]
    arguments += [COMPUTE_TF32 if tf32 else COMPUTE, ALGORITHM]
    a_at = 7 + len(operands[0])  # behind b
    known = functions()
    return c_call(known.multiply_batch if batched else known.multiply, arguments, {a_at: step})


def _reduces_as_usual(dtype: torch.dtype) -> bool:
    matmul = torch.backends.cuda.matmul
    switches = {
        torch.float16: matmul.allow_fp16_reduced_precision_reduction,
        torch.bfloat16: matmul.allow_bf16_reduced_precision_reduction,
    }
    return bool(switches.get(dtype, True))


def _back(word: Word, step: int) -> Word:
    return word - step if isinstance(word, int) else word._replace(offset=word.offset - step)


def _layout(matrix: torch.Tensor) -> tuple[int, int]:
    """How the library takes a matrix, and the elements from one of its rows (or columns) to the next."""
    (rows, columns), (row, column) = matrix.shape[-2:], matrix.stride()[-2:]
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return AS_IT_IS, max(row, columns, 1)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return TRANSPOSED, max(column, rows, 1)
    raise NotAsACall("neither rows nor columns of a matrix are gapless")
