"""What the kernels know of every column of the logits, gathered into gapless vectors: biases and class weights.

A bias comes times the factor by which products are multiplied (`options.py`). Behind the vocabulary, up to a whole
tile, there are zeros, so that the kernels need not look where it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from aclgrad.core.memory import Scratch
from aclgrad.core.spec import F32, Call
from aclgrad.gpu.launch import jit
from aclgrad.gpu.operands import CallKernel, Operand, vectors
from aclgrad.gpu.products import TILE

from .layout import ceil_div
from .options import LogitOptions

ColumnVectors = dict[str, torch.Tensor]
"""The vectors that there are, of all columns: `biases`, `classes` [V and more]; `totals`, of every tile's classes."""


@jit
def gather_columns(
    bias_ptr, class_weight_ptr, biases_ptr, classes_ptr, totals_ptr,
    vocabulary, factor, bias_stride, class_weight_stride, WIDTH: tl.constexpr,
):  # fmt: skip
    """The columns of a tile."""
    tile = tl.program_id(0)
    column = tile.to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    inside = column < vocabulary
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + column * bias_stride, inside, other=0.0)
        if factor is not None:
            bias *= factor
        tl.store(biases_ptr + column, bias)
    if class_weight_ptr is not None:
        weight = tl.load(class_weight_ptr + column * class_weight_stride, inside, other=0.0)
        tl.store(classes_ptr + column, weight)
        tl.store(totals_ptr + tile, tl.sum(weight, 0))


class Columns:
    """The vectors of a call."""

    __slots__ = ("_gather", "pieces")

    def __init__(self, call: Call, options: LogitOptions, scratch: Scratch) -> None:
        vocabulary = call.dims.V
        tiles = ceil_div(vocabulary, TILE[1])
        sizes = {}
        if options.bias:
            sizes["biases"] = tiles * TILE[1]
        if options.classes:
            sizes |= {"classes": tiles * TILE[1], "totals": tiles}
        self.pieces = {name: scratch.tensor((size,), F32) for name, size in sizes.items()}
        self._gather = None
        if sizes:
            given, strides = vectors(call, "bias", "class_weight")
            made = [Operand.at(name, self.pieces.get(name)) for name in ("biases", "classes", "totals")]
            numbers = {"vocabulary": vocabulary, "factor": options.factor(call["input"].dtype), **strides}
            self._gather = CallKernel(call, gather_columns, (tiles,), [*given, *made], numbers, {"WIDTH": TILE[1]})

    def __call__(self, args: Sequence[Any], outs: Sequence[Any], workspace: torch.Tensor) -> ColumnVectors:
        """Gather."""
        if self._gather is not None:
            self._gather(args, outs, workspace)
        return {name: piece.view(workspace) for name, piece in self.pieces.items()}
