"""p = (softmax − one-hot) · grad inside the product that makes the logits, which never leave the registers. For Hopper.

The two warp groups of a tile drift apart, so that one multiplies while the other exponentiates.
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
    GROUP_REGISTERS,
    GROUP_ROWS,
    LOADER_REGISTERS,
    LOG2E,
    PIECE,
    PIECES,
    ROWS,
    SUMS,
    accumulate,
    load,
    memory,
    place,
    resident,
    store,
)


@hopper.jit()
def _probabilities(logits, shift, factor, at_own, own, START: gl.constexpr, GIVEN: gl.constexpr):  # type: ignore[no-untyped-def]
    """P of the columns that begin at `START` of a tile: e^(logit − max) · grad / sum.

    At the target that is less `at_own`, the gradient, or `at_own` itself if it is `GIVEN`.
    """
    token: gl.constexpr = gl.SliceLayout(1, logits.type.layout)
    column = START + gl.arange(0, PIECE, gl.SliceLayout(0, logits.type.layout))
    shift = gl.convert_layout(shift, token, assert_trivial=True)
    factor = gl.convert_layout(factor, token, assert_trivial=True)
    at_own = gl.expand_dims(gl.convert_layout(at_own, token, assert_trivial=True), 1)
    own = gl.convert_layout(own, token, assert_trivial=True)
    p = gl.exp2(logits * LOG2E - gl.expand_dims(shift, 1)) * gl.expand_dims(factor, 1)
    if not GIVEN:
        at_own = p - at_own
    return gl.where(gl.expand_dims(own, 1) == gl.expand_dims(column, 0), at_own, p)


@hopper.jit()
def _multiply(  # type: ignore[no-untyped-def]
    GROUP: gl.constexpr, p, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, GIVEN: gl.constexpr
):
    own, scale, top, total, own_p = of_rows
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = place(tile, down, across)
        start = row * ROWS + GROUP * GROUP_ROWS
        token = start + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, SUMS))
        inside = token < M
        grad = gl.load(scale + token, inside, other=0.0)
        factor = grad / gl.load(total + token, inside, other=1.0)
        shift = gl.load(top + token, inside, other=0.0) * LOG2E
        target = gl.load(own + token, inside, other=-1) - (first + column * COLUMNS)
        target = gl.where((target >= 0) & (target < COLUMNS), target, -1).to(gl.int32)
        at_own = grad
        if GIVEN:
            at_own = gl.load(own_p + token, inside, other=0.0)
        l0, l1, l2, l3, step = accumulate(GROUP, x_ring, w_ring, ready, free, K, step, False)
        logits = (l0, l1, l2, l3)
        for index in gl.static_range(PIECES):
            values = _probabilities(logits[index], shift, factor, at_own, target, index * PIECE, GIVEN)
            store(GROUP, p, buffers, values, start, column * COLUMNS, index)
    tma.store_wait(0)


@hopper.jit("M", "N", "K", "first")
def fused_probabilities(  # type: ignore[no-untyped-def]
    x, w, p, own, scale, top, total, own_p, M, N, K, first, GIVEN: gl.constexpr
):
    """P [M, N] of tokens x [M, K] and rows w [N, K] of the weight, of which the first is row `first`.

    That of the own targets is looked up in `own_p` if it is `GIVEN`.
    """
    x_ring, w_ring, buffers, ready, free = memory(x, w, p, False)
    of_rows = (own, scale, top, total, own_p)
    gl.warp_specialize(
        [
            (_multiply, (0, p, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, GIVEN)),
            (_multiply, (1, p, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, GIVEN)),
            (load, (x, w, x_ring, w_ring, ready, free, M, N, K, False)),
        ],
        [4, 1],
        [GROUP_REGISTERS, LOADER_REGISTERS],
    )


class FusedProbabilities:
    """p of one chunk from its tokens and its rows of the weight, which lie at multiples of 16 bytes."""

    __slots__ = ("_numbers", "_p", "_run", "_w", "_x")

    def __init__(
        self, chunk: Chunk, features: int, strides: tuple[int, int, int], given: bool, dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of input, weight and p; p of the own targets may be `given`."""
        rows, columns = chunk.t1 - chunk.t0, chunk.v1 - chunk.v0
        group, depth, piece = GROUP_ROWS.value, DEPTH.value, PIECE.value
        self._x = hopper.Block((rows, features), strides[0], (group, depth), dtype)
        self._w = hopper.Block((columns, features), strides[1], (COLUMNS.value, depth), dtype)
        self._p = hopper.Block((rows, columns), strides[2], (group, piece), dtype)
        self._numbers = (rows, columns, features, chunk.v0, given)
        self._run = resident(
            fused_probabilities, rows, columns, device,
            (self._x, self._w, self._p), (I64, F32, F32, F32, F32, *self._numbers),
        )  # fmt: skip

    def __call__(self, p: torch.Tensor, x: torch.Tensor, w: torch.Tensor, tokens: list[torch.Tensor]) -> None:
        """Launch. `tokens` are own targets, gradients, maxima, sums and, if that is given, p of the own targets."""
        own, scale, top, total, *own_p = tokens
        self._run(self._x(x), self._w(w), self._p(p), own, scale, top, total, *(own_p or [scale]), *self._numbers)
