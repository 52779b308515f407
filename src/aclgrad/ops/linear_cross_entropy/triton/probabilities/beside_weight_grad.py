"""p of a given softmax beside the product for weight_grad: one costs memory traffic, the other arithmetic. For Hopper.

While the consumers compute a chunk of weight_grad = pᵀ · input, two side warps of each program make the next chunk's p.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from aclgrad.core.spec import F32, I64
from aclgrad.gpu import hopper
from aclgrad.gpu import hopper_product as product
from aclgrad.gpu.hopper_product import COLUMNS, CONSUMER_ROWS, EPILOGUE_PIECES, ROWS
from aclgrad.gpu.operands import NamedBulkKernel, Operand

from ..choose import Chunk

SIDE_WARPS = gl.constexpr(2)
SIDE_LINE = gl.constexpr(2048)  # columns of a token that the side warps take at a time
SIDE_LAYOUT = gl.constexpr(gl.BlockedLayout([4], [32], [2], [0]))
SHARED_CONSUMER_REGISTERS, SIDE_REGISTERS = gl.constexpr(176), gl.constexpr(144)  # where side warps have work, too


@hopper.jit()
def _consume(CONSUMER: gl.constexpr, out_desc, p_ring, x_ring, buffers, ready, free, M, N, K):
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    slot = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = product.tile_at(tile, down, across)
        s0, s1, s2, s3, slot = product.accumulate(CONSUMER, p_ring, x_ring, ready, free, K, slot, True)
        sums = (s0, s1, s2, s3)
        for piece in gl.static_range(EPILOGUE_PIECES):
            row0 = row * ROWS + CONSUMER * CONSUMER_ROWS
            product.store(CONSUMER, out_desc, buffers, sums[piece], row0, column * COLUMNS, piece)
    tma.store_wait(0)


@hopper.jit()
def _load_line(softmax_ptr, job, jobs, lines, columns, stride):
    column = job % lines * SIDE_LINE + gl.arange(0, SIDE_LINE, SIDE_LAYOUT)
    inside = (column < columns) & (job < jobs)
    return gl.load(softmax_ptr + (job // lines).to(gl.int64) * stride + column, inside, other=0.0)


@hopper.jit()
def _make_p(softmax_ptr, p_ptr, own_ptr, scale_ptr, tokens, columns, first, stride, p_stride):
    """p = (softmax − one-hot) · grad, a line of a token at a time; two more lines are on their way meanwhile."""
    lines = gl.cdiv(columns, SIDE_LINE)
    jobs = tokens * lines
    many = gl.num_programs(0)
    line = _load_line(softmax_ptr, gl.program_id(0), jobs, lines, columns, stride)
    next_line = _load_line(softmax_ptr, gl.program_id(0) + many, jobs, lines, columns, stride)
    for job in range(gl.program_id(0), jobs, many):
        coming = _load_line(softmax_ptr, job + 2 * many, jobs, lines, columns, stride)
        token = (job // lines).to(gl.int64)
        column = job % lines * SIDE_LINE + gl.arange(0, SIDE_LINE, SIDE_LAYOUT)
        target = (gl.load(own_ptr + token) - first).to(gl.int32)
        values = gl.where(column == target, line - 1.0, line) * gl.load(scale_ptr + token)
        gl.store(p_ptr + token * p_stride + column, values.to(p_ptr.dtype.element_ty), column < columns)
        line = next_line
        next_line = coming


@hopper.jit("M", "N", "K", "first")
def weight_grad_beside_p(
    p_desc, x_desc, out_desc, softmax_ptr, next_p_ptr, own_ptr, scale_ptr, M, N, K, columns, first, stride, p_stride
):
    """`out` [M, N] = pᵀ · x of p [K, M] and tokens x [K, N]; `next_p` of the `columns` that begin at row `first`."""
    p_ring, x_ring, buffers, ready, free = product.shared_memory(p_desc, x_desc, out_desc, True)
    gl.warp_specialize(
        [
            (_consume, (0, out_desc, p_ring, x_ring, buffers, ready, free, M, N, K)),
            (_consume, (1, out_desc, p_ring, x_ring, buffers, ready, free, M, N, K)),
            (_make_p, (softmax_ptr, next_p_ptr, own_ptr, scale_ptr, K, columns, first, stride, p_stride)),
            (product.produce, (p_desc, x_desc, p_ring, x_ring, ready, free, M, N, K, True)),
        ],
        [4, SIDE_WARPS, 1],
        [SHARED_CONSUMER_REGISTERS, SIDE_REGISTERS, SIDE_REGISTERS],
    )


class WeightGradBesideP:
    """A chunk's weight_grad, and p of the chunk after it. All matrices lie at multiples of 16 bytes."""

    def __init__(
        self, chunk: Chunk, after: Chunk, features: int, strides: tuple[int, int, int, int],
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of p, input, weight_grad and softmax."""
        shape = (chunk.columns, features, chunk.rows)
        p, x, out = product.blocks(shape, strides, dtype, dtype, k_first=True)
        operands = (
            Operand("softmax", F32), Operand("next_p", dtype), Operand("own", I64), Operand("scale", F32)
        )  # fmt: skip
        numbers = {
            **dict(zip("MNK", shape, strict=True)),
            "columns": after.columns, "first": after.v0, "stride": strides[3], "p_stride": strides[0],
        }  # fmt: skip
        self._kernel = NamedBulkKernel(
            weight_grad_beside_p, product.tile_grid(*shape[:2], device), device, {"p": p, "x": x, "out": out},
            operands, numbers, {}, any_alignment=True, num_warps=4, maxnreg=product.START_REGISTERS,
        )  # fmt: skip

    def __call__(
        self, out: torch.Tensor, p: torch.Tensor, x: torch.Tensor,
        softmax: torch.Tensor, next_p: torch.Tensor, tokens: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Launch. `softmax` is the next chunk's; `tokens` are the vectors of `TokenVectors`."""
        self._kernel({**tokens, "p": p, "x": x, "out": out, "softmax": softmax, "next_p": next_p})
