"""The product that makes logits with their statistics. For Hopper.

Each tile leaves, of every row, the largest of its logits and Σ exp(logit − largest); the logits themselves are stored
only where somebody wants them. The document's are rounded first. `EXACT` ones are not: they are stored less the largest
of their tile, and the own target is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from aclgrad.core.spec import F16, F32, I64
from aclgrad.gpu import hopper
from aclgrad.gpu import hopper_product as product
from aclgrad.gpu.hopper_product import ACCUMULATOR, COLUMNS, CONSUMER_ROWS, EPILOGUE_COLUMNS, EPILOGUE_PIECES, ROWS
from aclgrad.gpu.operands import NamedBulkKernel, Operand

from ..choose import Chunk
from ..hopper_logits import logits_of, of_columns
from ..maths import LOG2E
from .tiles import TileStatistics

NAN_WINS = gl.constexpr(tl.PropagateNan.ALL)
MINUS_INF = gl.constexpr(float("-inf"))  # the largest of no logits
NO_EXPONENTIAL = gl.constexpr(-200.0)  # of this and less, the exponential is 0
BY_TOKEN = gl.constexpr(gl.SliceLayout(1, ACCUMULATOR.value))  # the layout of a number for each row


@hopper.jit()
def _larger(a, b):
    return gl.maximum(a, b, propagate_nan=NAN_WINS)


@hopper.jit()
def _columns(logits, START: gl.constexpr):
    """Where the columns of a piece lie in its tile."""
    return gl.expand_dims(START + gl.arange(0, EPILOGUE_COLUMNS, gl.SliceLayout(0, logits.type.layout)), 0)


@hopper.jit()
def _values(logits, width, START: gl.constexpr, RAGGED: gl.constexpr):
    """Logits of a piece in float32; those beyond the `width` of a tile that is `RAGGED` are -Inf."""
    values = logits.to(gl.float32)
    if RAGGED:
        values = gl.where(_columns(logits, START) < width, values, MINUS_INF)
    return values


@hopper.jit()
def _largest(logits, width, START: gl.constexpr, RAGGED: gl.constexpr):
    values = _values(logits, width, START, RAGGED)
    return gl.convert_layout(gl.reduce(values, 1, _larger), BY_TOKEN, assert_trivial=True)


@hopper.jit()
def _sum(logits, shift, width, START: gl.constexpr, RAGGED: gl.constexpr):
    """Σ exp(logit − shift) of a piece's rows."""
    shift = gl.convert_layout(shift * LOG2E, gl.SliceLayout(1, logits.type.layout), assert_trivial=True)
    values = _values(logits, width, START, RAGGED)
    total = gl.sum(gl.exp2(values * LOG2E - gl.expand_dims(shift, 1)), 1)
    return gl.convert_layout(total, BY_TOKEN, assert_trivial=True)


@hopper.jit()
def _matching(logits, target, START: gl.constexpr):
    """The logits in the column that is their token's target, 0 for others."""
    target = gl.convert_layout(target, gl.SliceLayout(1, logits.type.layout), assert_trivial=True)
    values = logits.to(gl.float32)
    logit = gl.sum(gl.where(_columns(logits, START) == gl.expand_dims(target, 1), values, 0.0), 1)
    return gl.convert_layout(logit, BY_TOKEN, assert_trivial=True)


@hopper.jit()
def _statistics(logits, width, RAGGED: gl.constexpr):
    """(largest, Σ exp(logit − largest)) of the rows of a tile, given in pieces."""
    top = gl.full([CONSUMER_ROWS], MINUS_INF, gl.float32, BY_TOKEN)
    for piece in gl.static_range(EPILOGUE_PIECES):
        top = _larger(top, _largest(logits[piece], width, piece * EPILOGUE_COLUMNS, RAGGED))
    shift = gl.where(top == MINUS_INF, 0.0, top)
    total = gl.zeros([CONSUMER_ROWS], gl.float32, BY_TOKEN)
    for piece in gl.static_range(EPILOGUE_PIECES):
        total += _sum(logits[piece], shift, width, piece * EPILOGUE_COLUMNS, RAGGED)
    return top, total


@hopper.jit()
def _total(values):
    """The sums of a piece's rows."""
    return gl.convert_layout(gl.sum(values, 1), BY_TOKEN, assert_trivial=True)


@hopper.jit()
def _ahead(values, top, target, START: gl.constexpr):
    """How many of a piece's logits in the columns before their token's target are as large as the largest."""
    target = gl.convert_layout(target, gl.SliceLayout(1, values.type.layout), assert_trivial=True)
    top = gl.convert_layout(top, gl.SliceLayout(1, values.type.layout), assert_trivial=True)
    ahead = (_columns(values, START) < gl.expand_dims(target, 1)) & (values == gl.expand_dims(top, 1))
    return _total(ahead.to(gl.float32))


@hopper.jit()
def _weighed(left, classes_ptr, first, width, START: gl.constexpr, RAGGED: gl.constexpr):
    """Σ class weight · logit of a piece's rows."""
    if RAGGED:
        left = gl.where(_columns(left, START) < width, left, 0.0)
    if classes_ptr is not None:
        left = left * of_columns(classes_ptr, first, left, START)
    return _total(left)


@hopper.jit()
def _exact_statistics(
    CONSUMER: gl.constexpr, out_desc, buffers, logits, target, classes_ptr, first, width, row, column,
    STORE: gl.constexpr, CLASSED: gl.constexpr, MIXED: gl.constexpr, SEARCHED: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Statistics of the rows of a tile, whose first column is `first` of the vocabulary; what is stored on the way.

    (largest, Σ exp(x) but of the own target, Σ class weight · x, Σ exp(x) · x but of the own target, how many before
    the own target are as large as the largest if it is to be `SEARCHED`), where x = logit − largest.
    """
    top = gl.full([CONSUMER_ROWS], MINUS_INF, gl.float32, BY_TOKEN)
    for piece in gl.static_range(EPILOGUE_PIECES):
        top = _larger(top, _largest(logits[piece], width, piece * EPILOGUE_COLUMNS, RAGGED))
    shift = gl.where(top == MINUS_INF, 0.0, top)
    total = gl.zeros([CONSUMER_ROWS], gl.float32, BY_TOKEN)
    classed, mixed, ahead = total, total, total
    for piece in gl.static_range(EPILOGUE_PIECES):
        values = _values(logits[piece], width, piece * EPILOGUE_COLUMNS, RAGGED)
        by = gl.convert_layout(shift, gl.SliceLayout(1, values.type.layout), assert_trivial=True)
        left = values - gl.expand_dims(by, 1)
        if STORE:
            product.store(CONSUMER, out_desc, buffers, left, row, column, piece)
        own = gl.expand_dims(gl.convert_layout(target, gl.SliceLayout(1, left.type.layout), assert_trivial=True), 1)
        others = gl.where(_columns(left, piece * EPILOGUE_COLUMNS) == own, MINUS_INF, left)
        e = gl.exp2(others * LOG2E)
        total += _total(e)
        if CLASSED:
            classed += _weighed(left, classes_ptr, first, width, piece * EPILOGUE_COLUMNS, RAGGED)
        if MIXED:
            mixed += _total(e * gl.maximum(others, NO_EXPONENTIAL))
        if SEARCHED:
            ahead += _ahead(values, top, target, piece * EPILOGUE_COLUMNS)
    return top, total, classed, mixed, ahead


@hopper.jit()
def _consume(
    CONSUMER: gl.constexpr, out_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, tiles_row,
    factor, cap, STORE: gl.constexpr, EXACT: gl.constexpr,
):  # fmt: skip
    own_ptr, biases_ptr, classes_ptr, maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr = pointers
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    slot = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = product.tile_at(tile, down, across)
        row0 = row * ROWS + CONSUMER * CONSUMER_ROWS
        token = row0 + gl.arange(0, CONSUMER_ROWS, BY_TOKEN)
        inside = token < M
        target = gl.load(own_ptr + token, inside, other=-1) - (first + column * COLUMNS)
        l0, l1, l2, l3, slot = product.accumulate(CONSUMER, x_ring, w_ring, ready, free, K, slot, False)
        if EXACT:
            column0 = first + column * COLUMNS
            l0 = logits_of(l0, biases_ptr, column0, factor, cap, 0)
            l1 = logits_of(l1, biases_ptr, column0, factor, cap, EPILOGUE_COLUMNS)
            l2 = logits_of(l2, biases_ptr, column0, factor, cap, 2 * EPILOGUE_COLUMNS)
            l3 = logits_of(l3, biases_ptr, column0, factor, cap, 3 * EPILOGUE_COLUMNS)
            logits = (l0, l1, l2, l3)
        else:
            logits = (l0.to(out_desc.dtype), l1.to(out_desc.dtype), l2.to(out_desc.dtype), l3.to(out_desc.dtype))
            if STORE:
                for piece in gl.static_range(EPILOGUE_PIECES):
                    product.store(CONSUMER, out_desc, buffers, logits[piece], row0, column * COLUMNS, piece)
        width = N - column * COLUMNS
        if EXACT or not STORE:
            here = inside & (target >= 0) & (target < min(width, COLUMNS))
            target = gl.where(here, target, -1).to(gl.int32)
            logit = gl.zeros([CONSUMER_ROWS], gl.float32, BY_TOKEN)
            for piece in gl.static_range(EPILOGUE_PIECES):
                logit += _matching(logits[piece], target, piece * EPILOGUE_COLUMNS)
            gl.store(chosen_ptr + token, logit, here)
        if EXACT:
            CLASSED: gl.constexpr = classed_ptr is not None
            MIXED: gl.constexpr = mixed_ptr is not None
            SEARCHED: gl.constexpr = ahead_ptr is not None
            if width < COLUMNS:
                top, total, classed, mixed, ahead = _exact_statistics(
                    CONSUMER, out_desc, buffers, logits, target, classes_ptr, column0, width, row0, column * COLUMNS,
                    STORE, CLASSED, MIXED, SEARCHED, True,
                )  # fmt: skip
            else:
                top, total, classed, mixed, ahead = _exact_statistics(
                    CONSUMER, out_desc, buffers, logits, target, classes_ptr, column0, width, row0, column * COLUMNS,
                    STORE, CLASSED, MIXED, SEARCHED, False,
                )  # fmt: skip
        elif width < COLUMNS:
            top, total = _statistics(logits, width, True)
        else:
            top, total = _statistics(logits, width, False)
        at = token.to(gl.int64) * tiles_row + column
        gl.store(maxima_ptr + at, top, inside)
        gl.store(sums_ptr + at, total, inside)
        if classed_ptr is not None:
            gl.store(classed_ptr + at, classed, inside)
        if mixed_ptr is not None:
            gl.store(mixed_ptr + at, mixed, inside)
        if ahead_ptr is not None:
            gl.store(ahead_ptr + token, gl.where(ahead > 0.0, -1, first // COLUMNS + column), here)
    if STORE:
        tma.store_wait(0)


@hopper.jit("M", "N", "K", "first")
def logits_product(
    x_desc, w_desc, out_desc, own_ptr, biases_ptr, classes_ptr,
    maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr,
    M, N, K, first, tiles_row, factor, cap, STORE: gl.constexpr, EXACT: gl.constexpr,
):  # fmt: skip
    """Of tokens x [M, K] and rows w [N, K] of the weight, of which the first is row `first`.

    `maxima` and `sums` have `tiles_row` entries a token, one for each tile of columns; `chosen` gets the own target's
    logit where it is among the columns; `out` [M, N] gets the logits if `STORE`, and is not touched otherwise. The
    other statistics are those of `TileStatistics`.
    """
    x_ring, w_ring, buffers, ready, free = product.shared_memory(x_desc, w_desc, out_desc, False)
    pointers = (
        own_ptr, biases_ptr, classes_ptr, maxima_ptr, sums_ptr, chosen_ptr, classed_ptr, mixed_ptr, ahead_ptr
    )  # fmt: skip
    gl.warp_specialize(
        [
            (_consume, (0, out_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, tiles_row,
                        factor, cap, STORE, EXACT)),
            (_consume, (1, out_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, tiles_row,
                        factor, cap, STORE, EXACT)),
            (product.produce, (x_desc, w_desc, x_ring, w_ring, ready, free, M, N, K, False)),
        ],
        [4, 1],
        [product.CONSUMER_REGISTERS, product.PRODUCER_REGISTERS],
    )  # fmt: skip


class LogitsProduct:
    """Statistics, and logits where they are wanted, of tokens and rows of the weight at multiples of 16 bytes."""

    def __init__(
        self, chunk: Chunk, features: int, strides: tuple[int, int, int | None], tiles: TileStatistics, exact: bool,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of input, weight and logits, None if not wanted."""
        shape, self._stores = (chunk.rows, chunk.columns, features), strides[2] is not None
        options = tiles.options
        x, w, out = product.blocks(shape, (*strides[:2], strides[2] or 0), dtype, F16 if exact else dtype)
        matrices = {"x": x, "w": w, "out": out if self._stores else x}
        names = ("maxima", "sums", "chosen", "classed", "mixed", "ahead")
        self._kernel = NamedBulkKernel(
            logits_product, product.tile_grid(*shape[:2], device), device, matrices,
            (
                Operand("own", I64), Operand("biases", F32 if options.bias else None),
                Operand("classes", F32 if options.weighs_classes else None),
                *(Operand(name, tiles.dtype(name)) for name in names),
            ),
            {
                **dict(zip("MNK", shape, strict=True)), "first": chunk.v0, "tiles_row": tiles.count,
                **options.logit_numbers(dtype),
            },
            {"STORE": self._stores, "EXACT": exact},
            any_alignment=True, num_warps=4, maxnreg=product.START_REGISTERS,
        )  # fmt: skip

    def __call__(
        self, x: torch.Tensor, w: torch.Tensor, logits: torch.Tensor | None, tokens: Mapping[str, Any]
    ) -> None:
        """Launch. `tokens` are own targets, what there is of columns, and the statistics of the chunk's tiles."""
        self._kernel({**tokens, "x": x, "w": w, "out": x if logits is None else logits})
