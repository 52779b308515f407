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
from ..maths import LOG2E


@hopper.jit()
def _piece_of_p(logits, shift, factor, at_own, own, START: gl.constexpr, OWN_P_GIVEN: gl.constexpr):
    """The columns of p that begin at `START` of a tile: e^(logit − max) · grad / sum.

    At the target that is less `at_own`, the gradient, or `at_own` itself if `OWN_P_GIVEN`.
    """
    token: gl.constexpr = gl.SliceLayout(1, logits.type.layout)
    column = START + gl.arange(0, EPILOGUE_COLUMNS, gl.SliceLayout(0, logits.type.layout))
    shift = gl.convert_layout(shift, token, assert_trivial=True)
    factor = gl.convert_layout(factor, token, assert_trivial=True)
    at_own = gl.expand_dims(gl.convert_layout(at_own, token, assert_trivial=True), 1)
    own = gl.convert_layout(own, token, assert_trivial=True)
    p = gl.exp2(logits * LOG2E - gl.expand_dims(shift, 1)) * gl.expand_dims(factor, 1)
    if not OWN_P_GIVEN:
        at_own = p - at_own
    return gl.where(gl.expand_dims(own, 1) == gl.expand_dims(column, 0), at_own, p)


@hopper.jit()
def _consume(
    CONSUMER: gl.constexpr, p_desc, x_ring, w_ring, buffers, ready, free, token_ptrs, M, N, K, first,
    OWN_P_GIVEN: gl.constexpr,
):  # fmt: skip
    own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr = token_ptrs
    down, across = gl.cdiv(M, ROWS), gl.cdiv(N, COLUMNS)
    slot = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, column = product.tile_at(tile, down, across)
        row0 = row * ROWS + CONSUMER * CONSUMER_ROWS
        token = row0 + gl.arange(0, CONSUMER_ROWS, gl.SliceLayout(1, ACCUMULATOR))
        inside = token < M
        grad = gl.load(scale_ptr + token, inside, other=0.0)
        factor = grad / gl.load(total_ptr + token, inside, other=1.0)
        shift = gl.load(top_ptr + token, inside, other=0.0) * LOG2E
        target = gl.load(own_ptr + token, inside, other=-1) - (first + column * COLUMNS)
        target = gl.where((target >= 0) & (target < COLUMNS), target, -1).to(gl.int32)
        at_own = grad
        if OWN_P_GIVEN:
            at_own = gl.load(own_p_ptr + token, inside, other=0.0)
        l0, l1, l2, l3, slot = product.accumulate(CONSUMER, x_ring, w_ring, ready, free, K, slot, False)
        logits = (l0, l1, l2, l3)
        for piece in gl.static_range(EPILOGUE_PIECES):
            values = _piece_of_p(logits[piece], shift, factor, at_own, target, piece * EPILOGUE_COLUMNS, OWN_P_GIVEN)
            product.store(CONSUMER, p_desc, buffers, values, row0, column * COLUMNS, piece)
    tma.store_wait(0)


@hopper.jit("M", "N", "K", "first")
def probabilities_product(
    x_desc, w_desc, p_desc, own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr, M, N, K, first, OWN_P_GIVEN: gl.constexpr
):
    """`p` [M, N] of tokens x [M, K] and rows w [N, K] of the weight, of which the first is row `first`.

    That of the own targets is looked up in `own_p` if `OWN_P_GIVEN`.
    """
    x_ring, w_ring, buffers, ready, free = product.shared_memory(x_desc, w_desc, p_desc, False)
    token_ptrs = (own_ptr, scale_ptr, top_ptr, total_ptr, own_p_ptr)
    gl.warp_specialize(
        [
            (_consume, (0, p_desc, x_ring, w_ring, buffers, ready, free, token_ptrs, M, N, K, first, OWN_P_GIVEN)),
            (_consume, (1, p_desc, x_ring, w_ring, buffers, ready, free, token_ptrs, M, N, K, first, OWN_P_GIVEN)),
            (product.produce, (x_desc, w_desc, x_ring, w_ring, ready, free, M, N, K, False)),
        ],
        [4, 1],
        [product.CONSUMER_REGISTERS, product.PRODUCER_REGISTERS],
    )


class ProbabilitiesProduct:
    """p of one chunk from its tokens and its rows of the weight, which lie at multiples of 16 bytes."""

    def __init__(
        self, chunk: Chunk, features: int, strides: tuple[int, int, int], own_p_given: bool, dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        """`strides` are those of the rows of input, weight and p; p of the own targets may be given."""
        shape = (chunk.rows, chunk.columns, features)
        x, w, p = product.blocks(shape, strides, dtype, dtype)
        self._kernel = NamedBulkKernel(
            probabilities_product, product.tile_grid(*shape[:2], device), device, {"x": x, "w": w, "p": p},
            (Operand("own", I64), *(Operand(name, F32) for name in ("scale", "top", "total", "own_p"))),
            {**dict(zip("MNK", shape, strict=True)), "first": chunk.v0}, {"OWN_P_GIVEN": own_p_given},
            any_alignment=True, num_warps=4, maxnreg=product.START_REGISTERS,
        )  # fmt: skip

    def __call__(self, p: torch.Tensor, x: torch.Tensor, w: torch.Tensor, tokens: Mapping[str, Any]) -> None:
        """Launch. `tokens` are the vectors of `TokenVectors`; p of the own targets is among them if it is given."""
        own_p = tokens.get("own_p")
        self._kernel({**tokens, "x": x, "w": w, "p": p, "own_p": tokens["scale"] if own_p is None else own_p})
