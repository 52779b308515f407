"""The product that makes the probabilities: logits and p = (softmax − one-hot) · grad in one kernel. For Hopper.

The logits never leave the registers. The two consumers of a tile drift apart, so that one multiplies while the other
exponentiates.
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
from aclgrad.gpu.hopper_product import ACCUMULATOR, COLUMNS, CONSUMER_ROWS, EPILOGUE_COLUMNS, EPILOGUE_PIECES, ROWS
from aclgrad.gpu.operands import NamedBulkKernel, Operand

from ..choose import Chunk
from ..hopper_logits import falling, of_columns, scaled
from ..maths import LN2, LOG2E
from ..options import LogitOptions

NO_POWER = gl.constexpr(-200.0)  # 2 to the power of this and less is 0


@hopper.jit()
def _of_tokens(vector, piece):
    """A number for every row of a piece, [rows, 1]."""
    return gl.expand_dims(gl.convert_layout(vector, gl.SliceLayout(1, piece.type.layout), assert_trivial=True), 1)


@hopper.jit()
def _piece_of_p(
    products, shift, factor, at_own, own, beta, delta, biases_ptr, classes_ptr, first, scale, cap, START: gl.constexpr,
    OWN_P_GIVEN: gl.constexpr,
):  # fmt: skip
    """The columns of p that begin at `START` of a tile: e^(logit − max) · grad / sum.

    At the target that is less `at_own`, the gradient, or `at_own` itself if `OWN_P_GIVEN`. The options are those of
    `tokens.slopes`; with a softcap, r = 1 / (1 + e^2y) gives tanh y = 1 − 2r and its derivative 4r · (1 − r).
    """
    column = START + gl.arange(0, EPILOGUE_COLUMNS, gl.SliceLayout(0, products.type.layout))
    logits = scaled(products, biases_ptr, first, scale, START)
    if cap is not None:
        r = falling(logits)
        logits = cap - 2.0 * cap * r
    x = logits * LOG2E - _of_tokens(shift, logits)
    by = _of_tokens(factor, logits)
    if beta is not None:
        by += _of_tokens(beta, logits) * gl.maximum(x, NO_POWER)
    p = gl.exp2(x) * by
    at_own = _of_tokens(at_own, logits)
    if not OWN_P_GIVEN:
        at_own = p - at_own
    if delta is not None:
        if classes_ptr is not None:
            p -= _of_tokens(delta, logits) * of_columns(classes_ptr, first, logits, START)
        else:
            p -= _of_tokens(delta, logits)
    if cap is not None:
        p *= 4.0 * r * (1.0 - r)
    return gl.where(_of_tokens(own, logits) == gl.expand_dims(column, 0), at_own, p)


@hopper.jit()
def _consume(
    CONSUMER: gl.constexpr, p_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, scale, cap,
    OWN_P_GIVEN: gl.constexpr,
):  # fmt: skip
    own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr, biases_ptr, classes_ptr = pointers
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    slot = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = product.tile_at(tile, down, across)
        row0 = row * ROWS + CONSUMER * CONSUMER_ROWS
        token = row0 + gl.arange(0, CONSUMER_ROWS, gl.SliceLayout(1, ACCUMULATOR))
        inside = token < M
        grad = gl.load(scale_ptr + token, inside, other=0.0)
        total = gl.load(total_ptr + token, inside, other=1.0)
        factor = grad / total
        beta, delta = None, None
        if beta_ptr is not None:
            beta = gl.load(beta_ptr + token, inside, other=0.0) / total * LN2  # x is counted in powers of 2
        if delta_ptr is not None:
            delta = gl.load(delta_ptr + token, inside, other=0.0)
        shift = gl.load(top_ptr + token, inside, other=0.0) * LOG2E
        target = gl.load(own_ptr + token, inside, other=-1) - (first + column * COLUMNS)
        target = gl.where((target >= 0) & (target < COLUMNS), target, -1).to(gl.int32)
        at_own = grad
        if OWN_P_GIVEN:
            at_own = gl.load(own_p_ptr + token, inside, other=0.0)
        l0, l1, l2, l3, slot = product.accumulate(CONSUMER, x_ring, w_ring, ready, free, K, slot, False)
        products = (l0, l1, l2, l3)
        for piece in gl.static_range(EPILOGUE_PIECES):
            values = _piece_of_p(
                products[piece], shift, factor, at_own, target, beta, delta, biases_ptr, classes_ptr,
                first + column * COLUMNS, scale, cap, piece * EPILOGUE_COLUMNS, OWN_P_GIVEN,
            )  # fmt: skip
            product.store(CONSUMER, p_desc, buffers, values, row0, column * COLUMNS, piece)
    tma.store_wait(0)


@hopper.jit("M", "N", "K", "first")
def probabilities_product(
    x_desc, w_desc, p_desc, own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr,
    biases_ptr, classes_ptr, M, N, K, first, factor, cap, OWN_P_GIVEN: gl.constexpr,
):  # fmt: skip
    """`p` [M, N] of tokens x [M, K] and rows w [N, K] of the weight, of which the first is row `first`.

    That of the own targets is looked up in `own_p` if `OWN_P_GIVEN`.
    """
    x_ring, w_ring, buffers, ready, free = product.shared_memory(x_desc, w_desc, p_desc, False)
    pointers = (own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, beta_ptr, delta_ptr, biases_ptr, classes_ptr)
    gl.warp_specialize(
        [
            (_consume, (0, p_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, factor, cap,
                        OWN_P_GIVEN)),
            (_consume, (1, p_desc, x_ring, w_ring, buffers, ready, free, pointers, M, N, K, first, factor, cap,
                        OWN_P_GIVEN)),
            (product.produce, (x_desc, w_desc, x_ring, w_ring, ready, free, M, N, K, False)),
        ],
        [4, 1],
        [product.CONSUMER_REGISTERS, product.PRODUCER_REGISTERS],
    )  # fmt: skip


class ProbabilitiesProduct:
    """p of one chunk from its tokens and its rows of the weight, which lie at multiples of 16 bytes."""

    def __init__(
        self, chunk: Chunk, features: int, strides: tuple[int, int, int], own_p_given: bool, dtype: torch.dtype,
        device: torch.device, options: LogitOptions, *, entropy: bool,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of input, weight and p; p of the own targets may be given.

        Whether the `entropy` has a gradient.
        """
        shape = (chunk.rows, chunk.columns, features)
        x, w, p = product.blocks(shape, strides, dtype, dtype)
        self._kernel = NamedBulkKernel(
            probabilities_product, product.tile_grid(*shape[:2], device), device, {"x": x, "w": w, "p": p},
            (
                Operand("own", I64), *(Operand(name, F32) for name in ("scale", "top", "total", "own_p")),
                Operand("beta", F32 if entropy else None), Operand("delta", F32 if options.smoothing else None),
                Operand("biases", F32 if options.bias else None),
                Operand("classes", F32 if options.weighs_classes else None),
            ),
            {**dict(zip("MNK", shape, strict=True)), "first": chunk.v0, **options.logit_numbers(dtype)},
            {"OWN_P_GIVEN": own_p_given},
            any_alignment=True, num_warps=4, maxnreg=product.START_REGISTERS,
        )  # fmt: skip

    def __call__(self, p: torch.Tensor, x: torch.Tensor, w: torch.Tensor, tokens: Mapping[str, Any]) -> None:
        """Launch. `tokens` are the vectors of tokens and columns; p of the own targets is among them if it is given."""
        own_p = tokens.get("own_p")
        self._kernel({**tokens, "x": x, "w": w, "p": p, "own_p": tokens["scale"] if own_p is None else own_p})
