"""How the code of a layer accesses memory and the matrix product, for whatever dtype its tensors have."""

# ruff: noqa: ARG001  # numba fixes the arguments of overloads and intrinsics

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aclgrad.cpu.compiler import jit, overload
from aclgrad.cpu.gemm import Gemm, gemm_for
from aclgrad.cpu.gemm_tile import host_isa

from .table import View


def computed_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a layer whose tensors have this dtype computes in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def product_for(dtype: torch.dtype) -> Gemm:
    """The product of elements of `dtype`, each widened by itself: gate gradients never come in bfloat16 pairs."""
    return gemm_for(dtype, replace(host_isa(), bf16_dot=False))


def pack(like: Any, *args: int) -> None:
    """The product's `pack(*args)` of a matrix whose elements are of the dtype of the pointer `like`."""


def multiply(like: Any, *args: int) -> None:
    """The product's `multiply(*args)` of packed operands that hold elements of the dtype of the pointer `like`."""


@overload(pack)
def _pack(like: Any, *args: Any) -> Any:
    procedure = product_for(like.dtype).pack

    def call_pack(like: Any, *args: int) -> None:
        procedure(*args)

    return call_pack


@overload(multiply)
def _multiply(like: Any, *args: Any) -> Any:
    procedure = product_for(like.dtype).multiply

    def call_multiply(like: Any, *args: int) -> None:
        procedure(*args)

    return call_multiply


@intrinsic
def bytes_of(typing: Any, pointer: Any) -> Any:
    """Size of the elements a pointer leads to."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return context.get_constant(types.int64, pointer.dtype.itemsize)

    return types.int64(pointer), emit


@intrinsic
def flag_at(typing: Any, address: Any) -> Any:
    """The bool at an integer address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        byte = ir.IntType(8)
        return builder.zext(builder.load(builder.inttoptr(args[0], byte.as_pointer())), ir.IntType(64))

    return types.int64(address), emit


@jit
def at(where: View, t: int, n: int, k: int, like: Any) -> int:
    """Address of an element of a tensor that holds elements like those of the pointer `like`."""
    offset: int = (t * where.t + n * where.n + k * where.k) * bytes_of(like)
    return where.address + offset


@jit
def panels_of(lanes: int, height: int) -> int:
    """Panels of so many lanes each."""
    return (lanes + height - 1) // height
