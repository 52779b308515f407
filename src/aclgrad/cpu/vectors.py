"""Vectors of numbers for every channel, of any float dtype and stride: short ones, not worth a kernel for each."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from .compiler import jit
from .lanes import DTYPE_CODES, pointer_to
from .procedures import procedure

_HALF, _BRAIN, _SINGLE, _DOUBLE = (
    DTYPE_CODES[dtype] for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
)
_half, _brain, _single, _double = map(pointer_to, (torch.float16, torch.bfloat16, torch.float32, torch.float64))


@jit
def _copy(target: Any, to_step: int, source: Any, from_step: int, first: int, last: int) -> None:
    if to_step == 1 and from_step == 1:  # many at a time
        for k in range(first, last):
            target[k] = source[k]
    else:
        for k in range(first, last):
            target[k * to_step] = source[k * from_step]


@jit
def _copy_either_way(far: Any, stride: int, near: Any, first: int, last: int, back: int) -> None:
    if back == 0:
        _copy(near, 1, far, stride, first, last)
    else:
        _copy(far, stride, near, 1, first, last)


def _copy_vector(
    _thread: int, _threads: int, address: int, code: int, stride: int, near: int, first: int, last: int, back: int
) -> None:
    if code == _SINGLE:
        _copy_either_way(_single(address), stride, _double(near), first, last, back)
    elif code == _DOUBLE:
        _copy_either_way(_double(address), stride, _double(near), first, last, back)
    elif code == _HALF:
        _copy_either_way(_half(address), stride, _double(near), first, last, back)
    elif code == _BRAIN:
        _copy_either_way(_brain(address), stride, _double(near), first, last, back)


@cache
def vector_copy() -> Any:
    """The procedure `copy(address, code, stride, near, first, last, back)`, compiled once for all kernels.

    Elements from `first` to `last` of the vector at an address, of the dtype with that code, are widened into the same
    elements of a float64 vector at the address `near`, or rounded `back` from there.
    """
    return procedure(_copy_vector, "copy_vector", 7)
