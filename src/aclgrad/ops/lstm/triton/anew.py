"""Which rows start a time from zeros, for both directions, where an LSTM is reset inside its sequences."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from aclgrad.core.memory import Piece, Scratch
from aclgrad.core.spec import Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import Given, NamedKernel, Operand

from ..dims import LstmDims
from .packed import PackedRows

COLUMNS, ROWS = 128, 16
"""What a program of `mark` marks; one of `mark_packed` as many rows."""


@jit
def mark(anew_ptr, reset_ptr, batch_sizes_ptr, T, N, reset_strides, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile of anew [T, N]: bit 0 if a row is reset before the time, bit 1 if it is so as the reverse direction goes.

    A reset lies between a time and the one before. Past a sequence's end it means nothing.
    """
    t = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (t < T) & (n < N)
    later = inside & (t + 1 < T)
    if batch_sizes_ptr is not None:
        inside = inside & (tl.load(batch_sizes_ptr + t, mask=t < T, other=0) > n)
        later = later & inside & (tl.load(batch_sizes_ptr + t + 1, mask=t + 1 < T, other=0) > n)
    at = reset_ptr + t * reset_strides[0] + n * reset_strides[1]
    flags = (tl.load(at, mask=inside, other=0) != 0).to(tl.uint8)
    flags += (tl.load(at + reset_strides[0], mask=later, other=0) != 0).to(tl.uint8) * 2
    tl.store(anew_ptr + t * N + n, flags, mask=(t < T) & (n < N))


@jit
def mark_packed(anew_ptr, reset_ptr, starts_ptr, counts_ptr, times_ptr, T, capacity, reset_stride, ROWS: tl.constexpr):
    """The same of packed rows: anew [capacity]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    t = tl.load(times_ptr + row, mask=row < capacity, other=T)
    there = t < T
    n = row - tl.load(starts_ptr + t, mask=there, other=0)
    later = there & (n < tl.load(counts_ptr + t + 1, mask=there, other=0))
    after = tl.load(starts_ptr + t + 1, mask=later, other=0) + n
    flags = (tl.load(reset_ptr + row * reset_stride, mask=there, other=0) != 0).to(tl.uint8)
    flags += (tl.load(reset_ptr + after * reset_stride, mask=later, other=0) != 0).to(tl.uint8) * 2
    tl.store(anew_ptr + row, flags, mask=row < capacity)


class StartsAnew:
    """The flags [rows] in the workspace, and the launch that makes them."""

    def __init__(self, call: Call, dims: LstmDims, scratch: Scratch, packed: PackedRows | None) -> None:
        self.flags: Piece = scratch.tensor((dims.rows,), torch.uint8)
        anew, reset = Operand.at("anew", self.flags), Operand("reset", torch.bool)
        if packed is None:
            self._kernel = NamedKernel(
                mark, (triton.cdiv(dims.N, COLUMNS), triton.cdiv(dims.T, ROWS)), call.device,
                (anew, reset, Operand("batch_sizes", torch.int64 if dims.variable else None)),
                {"T": dims.T, "N": dims.N, "reset_strides": call["reset"].strides},
                {"ROWS": ROWS, "COLUMNS": COLUMNS}, unknown=True,
            )  # fmt: skip
        else:
            rows = ROWS * COLUMNS
            self._kernel = NamedKernel(
                mark_packed, (triton.cdiv(dims.rows, rows),), call.device,
                (anew, reset, packed.starts(), packed.counts(), packed.times()),
                {"T": dims.T, "capacity": dims.rows, "reset_stride": call["reset"].strides[0]}, {"ROWS": rows},
                unknown=True,
            )  # fmt: skip

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Mark."""
        self._kernel(given, workspace)


def starts_anew(call: Call, dims: LstmDims, scratch: Scratch, packed: PackedRows | None) -> StartsAnew | None:
    """Of a call that has resets."""
    return None if call["reset"] is None else StartsAnew(call, dims, scratch, packed)
