"""Turning a given softmax into p costs memory traffic, multiplying costs arithmetic: on Hopper both at the same time.

While the warp groups compute a chunk of weight_grad = pᵀ · input, two more warps of each block make the next chunk's p.
"""

from __future__ import annotations

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from aclgrad.core.spec import F32, I64
from aclgrad.gpu import hopper

from ..choose import Chunk
from ..hopper_tiles import (
    COLUMNS,
    DEPTH,
    GROUP_ROWS,
    PIECE,
    PIECES,
    ROWS,
    accumulate,
    load,
    memory,
    place,
    resident,
    store,
)

SIDE_WARPS = gl.constexpr(2)
LINE = gl.constexpr(2048)  # columns of a token that the two warps take at a time
ACROSS = gl.constexpr(gl.BlockedLayout([4], [32], [2], [0]))
GROUP_REGISTERS, SIDE_REGISTERS = gl.constexpr(176), gl.constexpr(144)


@hopper.jit()
def _multiply(GROUP: gl.constexpr, out, p_ring, x_ring, buffers, ready, free, M, N, K):  # type: ignore[no-untyped-def]
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = place(tile, down, across)
        s0, s1, s2, s3, step = accumulate(GROUP, p_ring, x_ring, ready, free, K, step, True)
        sums = (s0, s1, s2, s3)
        for index in gl.static_range(PIECES):
            store(GROUP, out, buffers, sums[index], row * ROWS + GROUP * GROUP_ROWS, column * COLUMNS, index)
    tma.store_wait(0)


@hopper.jit()
def _line(softmax, job, jobs, lines, columns, stride):  # type: ignore[no-untyped-def]
    column = job % lines * LINE + gl.arange(0, LINE, ACROSS)
    inside = (column < columns) & (job < jobs)
    return gl.load(softmax + (job // lines).to(gl.int64) * stride + column, inside, other=0.0)


@hopper.jit()
def _make_p(softmax, p, own, scale, tokens, columns, first, stride, p_stride):  # type: ignore[no-untyped-def]
    """P = (softmax − one-hot) · grad, a line of a token at a time; two more lines are on their way meanwhile."""
    lines = gl.cdiv(columns, LINE)
    jobs = tokens * lines
    many = gl.num_programs(0)
    line = _line(softmax, gl.program_id(0), jobs, lines, columns, stride)
    next_line = _line(softmax, gl.program_id(0) + many, jobs, lines, columns, stride)
    for job in range(gl.program_id(0), jobs, many):
        coming = _line(softmax, job + 2 * many, jobs, lines, columns, stride)
        token = (job // lines).to(gl.int64)
        column = job % lines * LINE + gl.arange(0, LINE, ACROSS)
        target = (gl.load(own + token) - first).to(gl.int32)
        values = gl.where(column == target, line - 1.0, line) * gl.load(scale + token)
        gl.store(p + token * p_stride + column, values.to(p.dtype.element_ty), column < columns)
        line = next_line
        next_line = coming


@hopper.jit("M", "N", "K", "first")
def weight_grad_beside_p(  # type: ignore[no-untyped-def]
    p, x, out, softmax, next_p, own, scale, M, N, K, columns, first, stride, p_stride
):
    """Out [M, N] = pᵀ · x of p [K, M] and tokens x [K, N]; `next_p` of the `columns` that begin at row `first`."""
    p_ring, x_ring, buffers, ready, free = memory(p, x, out, True)
    gl.warp_specialize(
        [
            (_multiply, (0, out, p_ring, x_ring, buffers, ready, free, M, N, K)),
            (_multiply, (1, out, p_ring, x_ring, buffers, ready, free, M, N, K)),
            (_make_p, (softmax, next_p, own, scale, K, columns, first, stride, p_stride)),
            (load, (p, x, p_ring, x_ring, ready, free, M, N, K, True)),
        ],
        [4, SIDE_WARPS, 1],
        [GROUP_REGISTERS, SIDE_REGISTERS, SIDE_REGISTERS],
    )


class WeightGradBesideP:
    """A chunk's weight_grad, and p of the chunk after it. All matrices lie at multiples of 16 bytes."""

    __slots__ = ("_numbers", "_out", "_p", "_run", "_x")

    def __init__(
        self, chunk: Chunk, after: Chunk, features: int, strides: tuple[int, int, int, int],
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of p, input, weight_grad and softmax."""
        tokens, rows = chunk.t1 - chunk.t0, chunk.v1 - chunk.v0
        group, depth = GROUP_ROWS.value, DEPTH.value
        self._p = hopper.Block((tokens, rows), strides[0], (depth, group), dtype)
        self._x = hopper.Block((tokens, features), strides[1], (depth, COLUMNS.value), dtype)
        self._out = hopper.Block((rows, features), strides[2], (group, PIECE.value), dtype)
        self._numbers = (rows, features, tokens, after.v1 - after.v0, after.v0, strides[3], strides[0])
        self._run = resident(
            weight_grad_beside_p, rows, features, device,
            (self._p, self._x, self._out), (F32, dtype, I64, F32, *self._numbers),
        )  # fmt: skip

    def __call__(
        self, out: torch.Tensor, p: torch.Tensor, x: torch.Tensor,
        softmax: torch.Tensor, next_p: torch.Tensor, tokens: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """Launch. `softmax` is the next chunk's; `tokens` are own targets and gradients."""
        self._run(self._p(p), self._x(x), self._out(out), softmax, next_p, *tokens, *self._numbers)
