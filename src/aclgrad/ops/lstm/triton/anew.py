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

COLUMNS, ROWS = 128, 16
"""What a program marks."""


@jit
def mark(anew_ptr, reset_ptr, batch_sizes_ptr, T, N, reset_strides, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile of anew [D, T, N], of direction `program_id(2)`: reset before the time, as the direction goes.

    A reset lies between a time and the one before. Past a sequence's end it means nothing.
    """
    reverse = tl.program_id(2)
    t = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    later = t + reverse
    there = (later < T) & (n < N)
    if batch_sizes_ptr is not None:
        there = there & (tl.load(batch_sizes_ptr + t, mask=t < T, other=0) > n)
        there = there & (tl.load(batch_sizes_ptr + later, mask=later < T, other=0) > n)
    flags = tl.load(reset_ptr + later * reset_strides[0] + n * reset_strides[1], mask=there, other=0)
    at = anew_ptr + (reverse.to(tl.int64) * T + t) * N + n
    tl.store(at, (flags != 0).to(tl.uint8), mask=(t < T) & (n < N))


class StartsAnew:
    """The flags [D, T, N] in the workspace, and the launch that makes them."""

    def __init__(self, call: Call, scratch: Scratch) -> None:
        dims: LstmDims = call.dims
        self.flags: Piece = scratch.tensor((dims.D, dims.T, dims.N), torch.uint8)
        self._kernel = NamedKernel(
            mark, (triton.cdiv(dims.N, COLUMNS), triton.cdiv(dims.T, ROWS), dims.D), call.device,
            (
                Operand.at("anew", self.flags),
                Operand("reset", torch.bool),
                Operand("batch_sizes", torch.int64 if dims.variable else None),
            ),
            {"T": dims.T, "N": dims.N, "reset_strides": call["reset"].strides},
            {"ROWS": ROWS, "COLUMNS": COLUMNS}, unknown=True,
        )  # fmt: skip
        self._empty = 0 in (dims.T, dims.N)

    def __call__(self, given: Given, workspace: torch.Tensor) -> None:
        """Mark."""
        if not self._empty:
            self._kernel(given, workspace)


def starts_anew(call: Call, scratch: Scratch) -> StartsAnew | None:
    """Of a call that has resets."""
    return None if call["reset"] is None else StartsAnew(call, scratch)
