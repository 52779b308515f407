"""Logits with their rows' statistics inside the product that makes them. For Hopper.

Each tile leaves, of every row, the largest of its logits and Σ exp(logit − largest); the logits themselves are stored
only where somebody wants them. The document's are rounded first. `EXACT` ones are not: they are stored less the largest
of their tile, and the own target is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from aclgrad.core.spec import F16, F32, I64
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

NAN_WINS = gl.constexpr(tl.PropagateNan.ALL)
NOTHING = gl.constexpr(float("-inf"))  # the largest of no logits
TOKENS = gl.constexpr(gl.SliceLayout(1, SUMS.value))


@hopper.jit()
def _larger(a, b):  # type: ignore[no-untyped-def]
    return gl.maximum(a, b, propagate_nan=NAN_WINS)


@hopper.jit()
def _columns(logits, START: gl.constexpr):  # type: ignore[no-untyped-def]
    """Where the columns of a piece lie in its tile."""
    return gl.expand_dims(START + gl.arange(0, PIECE, gl.SliceLayout(0, logits.type.layout)), 0)


@hopper.jit()
def _values(logits, width, START: gl.constexpr, CUT: gl.constexpr):  # type: ignore[no-untyped-def]
    """Logits of a piece in float32; those beyond the `width` of a tile that is `CUT` are -Inf."""
    values = logits.to(gl.float32)
    if CUT:
        values = gl.where(_columns(logits, START) < width, values, NOTHING)
    return values


@hopper.jit()
def _largest(logits, width, START: gl.constexpr, CUT: gl.constexpr):  # type: ignore[no-untyped-def]
    values = _values(logits, width, START, CUT)
    return gl.convert_layout(gl.reduce(values, 1, _larger), TOKENS, assert_trivial=True)


@hopper.jit()
def _sum(logits, shift, width, START: gl.constexpr, CUT: gl.constexpr):  # type: ignore[no-untyped-def]
    """Σ exp(logit − shift) of a piece's rows."""
    shift = gl.convert_layout(shift * LOG2E, gl.SliceLayout(1, logits.type.layout), assert_trivial=True)
    values = _values(logits, width, START, CUT)
    total = gl.sum(gl.exp2(values * LOG2E - gl.expand_dims(shift, 1)), 1)
    return gl.convert_layout(total, TOKENS, assert_trivial=True)


@hopper.jit()
def _matching(logits, target, START: gl.constexpr):  # type: ignore[no-untyped-def]
    """The logits in the column that is their token's target, 0 for others."""
    target = gl.convert_layout(target, gl.SliceLayout(1, logits.type.layout), assert_trivial=True)
    values = logits.to(gl.float32)
    logit = gl.sum(gl.where(_columns(logits, START) == gl.expand_dims(target, 1), values, 0.0), 1)
    return gl.convert_layout(logit, TOKENS, assert_trivial=True)


@hopper.jit()
def _statistics(logits, width, CUT: gl.constexpr):  # type: ignore[no-untyped-def]
    """(largest, Σ exp(logit − largest)) of the rows of a tile, given in pieces."""
    top = gl.full([GROUP_ROWS], NOTHING, gl.float32, TOKENS)
    for index in gl.static_range(PIECES):
        top = _larger(top, _largest(logits[index], width, index * PIECE, CUT))
    shift = gl.where(top == NOTHING, 0.0, top)
    total = gl.zeros([GROUP_ROWS], gl.float32, TOKENS)
    for index in gl.static_range(PIECES):
        total += _sum(logits[index], shift, width, index * PIECE, CUT)
    return top, total


@hopper.jit()
def _others(left, target, START: gl.constexpr):  # type: ignore[no-untyped-def]
    """Σ exp of a piece's rows of logits less their largest, but for the column that is their token's target."""
    target = gl.convert_layout(target, gl.SliceLayout(1, left.type.layout), assert_trivial=True)
    left = gl.where(_columns(left, START) == gl.expand_dims(target, 1), NOTHING, left)
    return gl.convert_layout(gl.sum(gl.exp2(left * LOG2E), 1), TOKENS, assert_trivial=True)


@hopper.jit()
def _exact_statistics(  # type: ignore[no-untyped-def]
    GROUP: gl.constexpr, out, buffers, logits, target, width, row, column, STORE: gl.constexpr, CUT: gl.constexpr
):
    """(largest, Σ exp(logit − largest) but of the own target) of the rows of a tile; what is stored on the way."""
    top = gl.full([GROUP_ROWS], NOTHING, gl.float32, TOKENS)
    for index in gl.static_range(PIECES):
        top = _larger(top, _largest(logits[index], width, index * PIECE, CUT))
    shift = gl.where(top == NOTHING, 0.0, top)
    total = gl.zeros([GROUP_ROWS], gl.float32, TOKENS)
    for index in gl.static_range(PIECES):
        values = _values(logits[index], width, index * PIECE, CUT)
        by = gl.convert_layout(shift, gl.SliceLayout(1, values.type.layout), assert_trivial=True)
        left = values - gl.expand_dims(by, 1)
        if STORE:
            store(GROUP, out, buffers, left, row, column, index)
        total += _others(left, target, index * PIECE)
    return top, total


@hopper.jit()
def _multiply(  # type: ignore[no-untyped-def]
    GROUP: gl.constexpr, out, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, stride,
    STORE: gl.constexpr, EXACT: gl.constexpr,
):  # fmt: skip
    own, maxima, sums, chosen = of_rows
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = place(tile, down, across)
        start = row * ROWS + GROUP * GROUP_ROWS
        token = start + gl.arange(0, GROUP_ROWS, TOKENS)
        inside = token < M
        target = gl.load(own + token, inside, other=-1) - (first + column * COLUMNS)
        l0, l1, l2, l3, step = accumulate(GROUP, x_ring, w_ring, ready, free, K, step, False)
        if EXACT:
            logits = (l0, l1, l2, l3)
        else:
            logits = (l0.to(out.dtype), l1.to(out.dtype), l2.to(out.dtype), l3.to(out.dtype))
            if STORE:
                for index in gl.static_range(PIECES):
                    store(GROUP, out, buffers, logits[index], start, column * COLUMNS, index)
        width = N - column * COLUMNS
        if EXACT or not STORE:
            here = inside & (target >= 0) & (target < min(width, COLUMNS))
            target = gl.where(here, target, -1).to(gl.int32)
            logit = gl.zeros([GROUP_ROWS], gl.float32, TOKENS)
            for index in gl.static_range(PIECES):
                logit += _matching(logits[index], target, index * PIECE)
            gl.store(chosen + token, logit, here)
        if EXACT:
            at_column = column * COLUMNS
            if width < COLUMNS:
                top, total = _exact_statistics(
                    GROUP, out, buffers, logits, target, width, start, at_column, STORE, True
                )  # fmt: skip
            else:
                top, total = _exact_statistics(
                    GROUP, out, buffers, logits, target, width, start, at_column, STORE, False
                )  # fmt: skip
        elif width < COLUMNS:
            top, total = _statistics(logits, width, True)
        else:
            top, total = _statistics(logits, width, False)
        at = token.to(gl.int64) * stride + column
        gl.store(maxima + at, top, inside)
        gl.store(sums + at, total, inside)
    if STORE:
        tma.store_wait(0)


@hopper.jit("M", "N", "K", "first")
def logits_and_statistics(  # type: ignore[no-untyped-def]
    x, w, out, own, maxima, sums, chosen, M, N, K, first, stride, STORE: gl.constexpr, EXACT: gl.constexpr
):
    """Of tokens x [M, K] and rows w [N, K] of the weight, of which the first is row `first`.

    `maxima` and `sums` have `stride` entries a token, one for each tile of columns; `chosen` gets the own target's
    logit where it is among the columns; `out` [M, N] gets the logits if `STORE`, and is not touched otherwise.
    """
    x_ring, w_ring, buffers, ready, free = memory(x, w, out, False)
    of_rows = (own, maxima, sums, chosen)
    gl.warp_specialize(
        [
            (_multiply, (0, out, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, stride, STORE, EXACT)),
            (_multiply, (1, out, x_ring, w_ring, buffers, ready, free, of_rows, M, N, K, first, stride, STORE, EXACT)),
            (load, (x, w, x_ring, w_ring, ready, free, M, N, K, False)),
        ],
        [4, 1],
        [GROUP_REGISTERS, LOADER_REGISTERS],
    )


class FusedLogits:
    """Statistics, and logits where they are wanted, of tokens and rows of the weight at multiples of 16 bytes."""

    __slots__ = ("_numbers", "_out", "_run", "_w", "_x")

    def __init__(
        self, chunk: Chunk, features: int, strides: tuple[int, int, int | None], tiles: int, exact: bool,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of input, weight and logits, None if not wanted; `tiles` those of a token."""
        rows, columns = chunk.t1 - chunk.t0, chunk.v1 - chunk.v0
        group, depth, piece = GROUP_ROWS.value, DEPTH.value, PIECE.value
        stored = F16 if exact else dtype
        self._x = hopper.Block((rows, features), strides[0], (group, depth), dtype)
        self._w = hopper.Block((columns, features), strides[1], (COLUMNS.value, depth), dtype)
        self._out = None if strides[2] is None else hopper.Block((rows, columns), strides[2], (group, piece), stored)
        self._numbers = (rows, columns, features, chunk.v0, tiles, self._out is not None, exact)
        self._run = resident(
            logits_and_statistics, rows, columns, device,
            (self._x, self._w, self._out or self._x), (I64, F32, F32, F32, *self._numbers),
        )  # fmt: skip

    def __call__(
        self, x: torch.Tensor, w: torch.Tensor, logits: torch.Tensor | None, of_tokens: Sequence[torch.Tensor]
    ) -> None:
        """Launch. `of_tokens` are own targets, maxima and sums of the chunk's tiles, and logits of the own targets."""
        tokens = self._x(x)
        out = tokens if self._out is None or logits is None else self._out(logits)
        self._run(tokens, self._w(w), out, *of_tokens, *self._numbers)
